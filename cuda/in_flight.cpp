#include "cuda/in_flight.h"

#include <algorithm>

namespace ebb {

InFlight::InFlight(const CudaContext& context) : context_(context) {
  context_.enter();
  for (OwnedEvent& mark : marks_) mark = make_event(cudaEventBlockingSync);
}

// Before an operation of many entries, marks follow each other without entries between them, so
// that as many earlier entries have left the queue.
void InFlight::add_operation(cudaStream_t stream, uint64_t num_entries) {
  while (num_entries > 0) {
    const uint64_t part = std::min(num_entries, kEntriesPerMark);
    if (num_entries_ + part > kEntriesPerMark) add_mark(stream);
    num_entries_ += part;
    num_entries -= part;
  }
}

void InFlight::add_mark(cudaStream_t stream) {
  context_.enter();
  const cudaEvent_t mark = marks_[num_marks_ % kNumMarks].get();
  if (num_marks_ >= kNumMarks) EBB_CUDA(cudaEventSynchronize(mark), "waiting for an event");
  EBB_CUDA(cudaEventRecord(mark, stream), "recording an event");
  ++num_marks_;
  num_entries_ = 0;
}

}  // namespace ebb
