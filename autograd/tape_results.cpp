// What a tape makes of a loss: its sum, and what somebody wants to see of it at home.
#include <algorithm>

#include "autograd/tape.h"
#include "device/errors.h"

namespace ebb {

int64_t Tape::first_wanted_row(int64_t num_rows) const {
  if (options_.results.loss) return 0;
  return num_rows - options_.results.logits.dim(0);
}

void Tape::show_logits(int64_t num_rows, int64_t row, int64_t first_class, Tensor logits) {
  const Tensor& all = options_.results.logits;
  if (!all) return;
  EBB_CHECK(all.dtype == logits.dtype && all.dim(0) <= num_rows &&
                first_class + logits.dim(1) <= all.dim(1),
            "the logits are of another type or shape than what was asked for");
  const int64_t first = num_rows - all.dim(0);  // row of the loss that comes first there
  const auto size = size_of(all.dtype);
  const auto place = [&](int64_t r) {
    return all.data + static_cast<size_t>((r - first) * all.dim(1) + first_class) * size;
  };
  const int64_t from = std::max(row, first), end = row + logits.dim(0);
  const auto bytes = static_cast<size_t>(logits.dim(1)) * size;
  const bool whole = logits.dim(1) == all.dim(1);
  for (int64_t r = from; r < end; r += whole ? end - from : 1) {
    compute_.copy(place(r), logits.slice_rows(r - row, 1).data,
                  whole ? bytes * static_cast<size_t>(end - from) : bytes, CopyKind::Store);
  }
}

void Tape::add_losses(Tensor losses) {
  if (const Tensor& all = options_.results.losses; all) {
    EBB_CHECK(num_losses_shown_ + losses.num_elements() <= all.num_elements(),
              "there are more losses than were asked for");
    compute_.copy(all.data + static_cast<size_t>(num_losses_shown_) * sizeof(float), losses.data,
                  losses.bytes(), CopyKind::Store);
    num_losses_shown_ += losses.num_elements();
  }
  kernels_.sum(compute_, loss_total_, losses, loss_write_);
  loss_write_ = Write::Add;
}

}  // namespace ebb
