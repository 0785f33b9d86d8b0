#include "scheduler/search/options.h"

#include <fmt/format.h>

namespace ebb {

TapeOptions tape_options(const TrainerOptions& options, bool training, uint32_t step) {
  return {.training = training,
          .recompute = static_cast<uint32_t>(options.recompute),
          .recomputed_layers = options.recomputed_layers.value_or(UINT32_MAX),
          .recomputed_of = options.recomputed_of.value_or(UINT32_MAX),
          .mark_idle = options.activations == ActivationPlacement::Offload,
          .dropout = {.probability = options.dropout,
                      .key = random_key(options.seed, RandomUse::Dropout),
                      .step = step}};
}

uint32_t micro_batches_together(const TrainerOptions& options, uint32_t count) {
  return options.micro_batch_order == MicroBatchOrder::Vertical ? count : 1;
}

std::string name_of(Recompute recompute) {
  switch (recompute) {
    case Recompute::None:
      return "none";
    case Recompute::Layer:
      return "layer";
    case Recompute::Sqrt:
      return "sqrt";
    case Recompute::Auto:
      return "auto";
    default:
      return fmt::format("{} layers", static_cast<uint32_t>(recompute));
  }
}

std::string_view name_of(ActivationPlacement placement) {
  static constexpr std::string_view kNames[] = {"device", "offload", "auto"};
  return kNames[static_cast<int>(placement)];
}

std::string_view name_of(MicroBatchOrder order) {
  static constexpr std::string_view kNames[] = {"horizontal", "vertical", "auto"};
  return kNames[static_cast<int>(order)];
}

std::string_view name_of(UpdateOrder update) {
  static constexpr std::string_view kNames[] = {"wait", "overlap", "speculate", "auto"};
  return kNames[static_cast<int>(update)];
}

}  // namespace ebb
