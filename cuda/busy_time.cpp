#include "cuda/busy_time.h"

namespace ebb {

BusyTime::BusyTime() : marks_(kNumMarks) {
  for (Mark& mark : marks_) mark.event = make_event();
}

void BusyTime::mark(cudaStream_t stream, Doing doing) noexcept {
  if (doing == doing_) return;
  if (end_ - first_ == kNumMarks) count();
  if (end_ - first_ == kNumMarks) return;
  if (cudaEventRecord(at(end_).event.get(), stream) != cudaSuccess) {
    (void)cudaGetLastError();  // otherwise the next launch would report it
    return;
  }
  at(end_++).doing = doing_ = doing;
}

void BusyTime::count() noexcept {
  while (end_ - first_ >= 2 && query(at(first_ + 1).event.get()) == cudaSuccess) {
    float milliseconds = 0;
    const cudaError_t status =
        cudaEventElapsedTime(&milliseconds, at(first_).event.get(), at(first_ + 1).event.get());
    if (status != cudaSuccess) (void)cudaGetLastError();
    const double seconds = 1e-3 * static_cast<double>(milliseconds);
    if (at(first_).doing == Doing::Working) working_s_ += seconds;
    if (at(first_).doing == Doing::Waiting) waiting_s_ += seconds;
    ++first_;
  }
}

}  // namespace ebb
