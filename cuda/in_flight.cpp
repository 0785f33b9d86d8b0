#include "cuda/in_flight.h"

namespace ebb {

InFlight::InFlight(const CudaContext& context) : context_(context) {
  context_.enter();
  for (Mark& mark : marks_) mark.event = make_event(cudaEventBlockingSync);
}

void InFlight::add_operation(cudaStream_t stream, uint64_t num_entries) {
  if (after_last_mark_ > 0 && after_last_mark_ + num_entries > kEntriesPerMark) add_mark(stream);
  while (in_flight_ + num_entries > kMostEntries && first_ < end_) await_first_mark();
  after_last_mark_ += num_entries;
  in_flight_ += num_entries;
}

void InFlight::add_mark(cudaStream_t stream) {
  if (end_ - first_ == kNumMarks) await_first_mark();
  context_.enter();
  Mark& mark = at(end_);
  EBB_CUDA(cudaEventRecord(mark.event.get(), stream), "recording an event");
  mark.num_entries = after_last_mark_;
  after_last_mark_ = 0;
  ++end_;
}

void InFlight::await_first_mark() {
  context_.enter();
  EBB_CUDA(cudaEventSynchronize(at(first_).event.get()), "waiting for an event");
  in_flight_ -= at(first_).num_entries;
  ++first_;
}

}  // namespace ebb
