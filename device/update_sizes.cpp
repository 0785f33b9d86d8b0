#include "device/update_sizes.h"

#include "device/adamw_planes.h"
#include "device/errors.h"

namespace ebb {
namespace {

constexpr size_t kAlignment = 64;
constexpr size_t kTaskBytes = 24;  // sizeof(UndoTask)
constexpr size_t kBlockBytes = kOutlierBlockWords * sizeof(uint32_t);
/// A full block has at least this many outliers.
constexpr uint32_t kFewestOutliersOfBlock = kOutlierBlockWords - kMostOutliersTogether;

size_t aligned(size_t bytes) { return (bytes + kAlignment - 1) / kAlignment * kAlignment; }

}  // namespace

size_t undo_log_fixed_bytes(int64_t num_elements) {
  const auto num_tasks = static_cast<size_t>(num_update_tasks(num_elements));
  return aligned(static_cast<size_t>(num_elements)) + aligned(num_tasks * kTaskBytes);
}

size_t undo_log_bytes(int64_t num_elements, int64_t num_outliers) {
  EBB_CHECK(num_elements >= 0 && num_outliers >= 0, "a log of a negative number of elements");
  // The last block of every task may be partly empty.
  const int64_t num_blocks = num_update_tasks(num_elements) + num_outliers / kFewestOutliersOfBlock;
  return undo_log_fixed_bytes(num_elements) + static_cast<size_t>(num_blocks) * kBlockBytes;
}

}  // namespace ebb
