#include "cuda/in_flight.h"

namespace ebb {

InFlight::InFlight(const CudaContext& context) : context_(context) {
  context_.enter();
  for (OwnedEvent& mark : marks_) mark = make_event(cudaEventBlockingSync);
}

void InFlight::add_operation(cudaStream_t stream) noexcept {
  if (num_operations_ > 0 && num_operations_ % kOperationsPerMark == 0) {
    (void)context_.try_enter();
    const uint64_t mark = num_operations_ / kOperationsPerMark - 1;
    if (mark >= kNumMarks) (void)cudaEventSynchronize(marks_[mark % kNumMarks].get());
    (void)cudaEventRecord(marks_[mark % kNumMarks].get(), stream);
    (void)cudaGetLastError();
  }
  ++num_operations_;
}

}  // namespace ebb
