#include "cuda/in_flight.h"

namespace ebb {

InFlight::InFlight(const CudaContext& context) : context_(context) {
  context_.enter();
  for (OwnedEvent& mark : marks_) mark = make_event(cudaEventBlockingSync);
}

void InFlight::add_operation(cudaStream_t stream) {
  const uint64_t before = num_operations_++;
  if (before == 0 || before % kOperationsPerMark != 0) return;
  context_.enter();
  const uint64_t mark = before / kOperationsPerMark - 1;
  const cudaEvent_t event = marks_[mark % kNumMarks].get();
  if (mark >= kNumMarks) EBB_CUDA(cudaEventSynchronize(event), "waiting for an event");
  EBB_CUDA(cudaEventRecord(event, stream), "recording an event");
}

}  // namespace ebb
