// What a tape does with losses and logits: it sums the losses, and stores what is requested.
#include <algorithm>

#include "autograd/tape.h"
#include "device/errors.h"
#include "device/kernels.h"

namespace ebb {

int64_t Tape::first_requested_row(int64_t num_rows) const {
  if (options_.results.loss) return 0;
  return num_rows - options_.results.logits.dim(0);
}

void Tape::store_logits(int64_t num_rows, int64_t row, RowRange classes, Tensor logits) {
  const Tensor& all = options_.results.logits;
  if (!all) return;
  EBB_CHECK(all.dtype == logits.dtype && all.dim(0) <= num_rows &&
                classes.first + classes.count <= all.dim(1),
            "the logits have another type or shape than the request says");
  const int64_t first = num_rows - all.dim(0);  // the first requested row
  const auto size = size_of(all.dtype);
  const auto address = [&](int64_t r) {
    return all.data + static_cast<size_t>((r - first) * all.dim(1) + classes.first) * size;
  };
  const int64_t from = std::max(row, first), end = row + logits.dim(0);
  const auto bytes = static_cast<size_t>(classes.count) * size;
  const bool whole = classes.count == all.dim(1) && classes.count == logits.dim(1);
  for (int64_t r = from; r < end; r += whole ? end - from : 1) {
    compute_.copy(address(r), logits.slice_rows(r - row, 1).data,
                  whole ? bytes * static_cast<size_t>(end - from) : bytes, CopyKind::Store);
  }
}

void Tape::add_losses(Tensor losses) {
  if (const Tensor& all = options_.results.losses; all) {
    EBB_CHECK(num_losses_stored_ + losses.num_elements() <= all.num_elements(),
              "there are more losses than were requested");
    compute_.copy(all.data + static_cast<size_t>(num_losses_stored_) * sizeof(float), losses.data,
                  losses.bytes(), CopyKind::Store);
    num_losses_stored_ += losses.num_elements();
  }
  submit(Sum{loss_total_, losses, loss_write_});
  loss_write_ = Write::Add;
}

}  // namespace ebb
