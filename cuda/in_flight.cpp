#include "cuda/in_flight.h"

namespace ebb {

InFlight::InFlight(const CudaContext& context) : context_(context) {
  context_.enter();
  for (OwnedEvent& mark : marks_) mark = make_event(cudaEventBlockingSync);
}

void InFlight::add_operation(cudaStream_t stream, uint64_t num_records) {
  for (uint64_t i = 0; i < num_records; ++i) add_record(stream);
}

void InFlight::add_record(cudaStream_t stream) {
  const uint64_t before = num_records_++;
  if (before == 0 || before % kRecordsPerMark != 0) return;
  context_.enter();
  const uint64_t mark = before / kRecordsPerMark - 1;
  const cudaEvent_t event = marks_[mark % kNumMarks].get();
  if (mark >= kNumMarks) EBB_CUDA(cudaEventSynchronize(event), "waiting for an event");
  EBB_CUDA(cudaEventRecord(event, stream), "recording an event");
}

}  // namespace ebb
