#include "cuda/in_flight.h"

namespace ebb {

InFlight::InFlight(const CudaContext& context) : context_(context) {
  context_.enter();
  for (OwnedEvent& mark : marks_) mark = make_event(cudaEventBlockingSync);
}

void InFlight::add_operation(cudaStream_t stream, uint64_t num_entries) {
  if (num_entries_ + num_entries > kEntriesPerMark) {
    context_.enter();
    const cudaEvent_t mark = marks_[num_marks_ % kNumMarks].get();
    if (num_marks_ >= kNumMarks) EBB_CUDA(cudaEventSynchronize(mark), "waiting for an event");
    EBB_CUDA(cudaEventRecord(mark, stream), "recording an event");
    ++num_marks_;
    num_entries_ = 0;
  }
  num_entries_ += num_entries;
}

}  // namespace ebb
