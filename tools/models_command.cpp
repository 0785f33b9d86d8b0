#include <fmt/format.h>

#include <algorithm>

#include "device/planes.h"
#include "model_zoo/presets.h"
#include "scheduler/search/prepare.h"
#include "tools/cli.h"
#include "tools/commands.h"
#include "tools/model_source.h"
#include "tools/size_parse.h"
#include "tools/train_setup.h"

namespace ebb {
namespace {

/// The state of a training and its gradients, which wait in host memory for the norm.
size_t training_bytes(uint64_t num_parameters, const TrainOptions& options) {
  return state_bytes(options.dtype, num_parameters) + num_parameters * size_of(options.dtype);
}

/// The smallest device budget that works, with the default flags. It does not depend on a plan.
/// Recomputation decides how many blocks the largest call needs.
size_t smallest_device_bytes(const Preset& preset, TrainOptions options) {
  options.preset = preset.name;
  const ModelSource source = preset_source(options.preset);
  const BatchShape shape = batch_shape(options, source);
  const auto model = create_model(
      source.config, {.batch_size = shape.batch_size, .length = shape.length}, options.dtype);
  const TrainerOptions training = trainer_options(options, shape, 0, true);
  const Budgets budgets{.device = {.kind = DeviceKind::Cuda, .num_threads = 1}};
  const std::vector<ObservedLayer> layers = observe_layers(*model, training, budgets);
  const auto with = [&](const Recompute& recompute) {
    return prepare_context(*model, training,
                           {.recompute = recompute, .activations = ActivationPlacement::Offload},
                           budgets, layers)
        .smallest_device_bytes;
  };
  return std::min(
      {with(kRecomputeNone), with(kRecomputeEach), with(resolve(SquareRootOfLayers{}, *model))});
}

}  // namespace

int models_command(std::vector<std::string> arguments) {
  CommandLine line("Lists the presets that `ebb train --preset` knows.", "ebb models");
  if (!parse_arguments(line, std::move(arguments), false)) return 0;
  const TrainOptions options;
  constexpr const char* kRow =
      "{:<18} {:>10} {:>10} {:>10} {:>11} {:>7} {:>9} {:>6} {:>10} {:>11}  {}\n";
  fmt::print(kRow, "preset", "parameters", "weights", "training", "least GPU", "layers", "channels",
             "heads", "positions", "vocabulary", "description");
  for (const Preset& preset : presets()) {
    const ModelSizes c = sizes_of(preset.config);
    const uint64_t count = num_parameters(preset.config);
    fmt::print(kRow, preset.name, format_count(count), format_bytes(count * size_of(options.dtype)),
               format_bytes(training_bytes(count, options)),
               format_bytes(smallest_device_bytes(preset, options)), c.num_layers, c.channels,
               c.num_heads, c.max_positions, c.vocabulary, preset.description);
  }
  fmt::print(
      "\nweights    in {}\n"
      "training   weights, low halves, moments and gradients: in host memory, as far as they are "
      "not on the device\n"
      "least GPU  the smallest --device-memory that works with --micro-batch-size {} and the "
      "default --seq-length and --chunk-size {}; smaller chunks need less; `ebb plan` says how "
      "fast a machine is\n",
      name_of(options.dtype), options.micro_batch_size, flag_size(options.chunk_size));
  return 0;
}

}  // namespace ebb
