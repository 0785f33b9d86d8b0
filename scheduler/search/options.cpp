#include "scheduler/search/options.h"

namespace ebb {

TapeOptions tape_options(const TrainerOptions& options, const Schedule& schedule, bool training,
                         uint32_t step) {
  return {.training = training,
          .recompute = schedule.recompute.layers_at_once,
          .recomputed_layers = schedule.recompute.first,
          .recomputed_of = schedule.recompute.of,
          .mark_idle = schedule.activations == ActivationPlacement::Offload,
          .dropout = {.probability = options.dropout,
                      .key = random_key(options.seed, RandomUse::Dropout),
                      .step = step}};
}

uint32_t micro_batches_together(const Schedule& schedule, uint32_t count) {
  return schedule.micro_batch_order == MicroBatchOrder::Vertical ? count : 1;
}

}  // namespace ebb
