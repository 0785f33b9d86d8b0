#include "tools/inference_setup.h"

#include <fmt/format.h>

#include <algorithm>

#include "device/errors.h"
#include "tools/size_parse.h"
#include "tools/train_setup.h"

namespace ebb {
void validate_inference(const TrainOptions& options) { validate_planned(options); }

InferenceOptions inference_options(const TrainOptions& options, const ModelSource& source) {
  return {.dtype = options.dtype,
          .chunk_bytes = options.chunk_size,
          .seed = options.seed,
          .random_weights = !source.has_weights};
}

namespace {

std::string advice(std::span<const PlannedChange> changes) {
  if (changes.empty()) return "no change of a single flag makes it fit";
  std::string text = "each of these changes makes it fit:";
  for (const PlannedChange& change : changes) text += "\n  " + change.text;
  return text;
}

}  // namespace

LoadedInference load_inference(const RunFlags& flags, const ModelSource& source,
                               std::span<const ForwardSpec> passes, const PlanInference& plan) {
  const TrainOptions& options = flags.options;
  // Reports an invalid folder before anything is allocated.
  std::unique_ptr<const SourceWeights> weights;
  if (source.has_weights) {
    weights = std::make_unique<const SourceWeights>(source, *passes[0].model);
  }
  DeviceOptions device = device_options(options);
  LoadedInference loaded;
  try {
    loaded.prepared =
        prepare_inference(passes, inference_options(options, source), budgets_of(options, device));
  } catch (const PlanError& error) {
    throw PlanError(fmt::format("{}\n{}", error.what(),
                                advice(inference_changes_that_fit(flags, device, plan))));
  }
  device.memory_bytes = options.device_memory.value_or(loaded.prepared.ledger.total(Tier::Device));
  loaded.device = create_device(device);
  loaded.inference = std::make_unique<Inference>(*loaded.device, loaded.prepared);
  loaded.notices = host_memory_notices(options);
  if (weights) {
    const std::vector<std::string> of_weights = weights->notices();
    loaded.notices.insert(loaded.notices.end(), of_weights.begin(), of_weights.end());
    weights->load([&](ParameterId id, uint64_t first, std::span<const float> values) {
      loaded.inference->write_parameter(id, first, values);
    });
  }
  return loaded;
}

std::string inference_header(const TrainOptions& options, const ModelSource& source,
                             const LoadedInference& loaded) {
  const PreparedInference& p = loaded.prepared;
  const uint32_t num_chunks = p.layout->num_chunks();
  const uint32_t resident_chunks = p.forwards.back().plan.count(&ChunkRecord::begins_on_device);
  const std::string header = fmt::format(
      "model   {}: {} parameters, {}; weights: {}\n"
      "device  {}; {} of {} used, {} in host memory; {} of {} chunks of weights stay on the "
      "device\n",
      source.name, format_count(num_parameters(source.config)), name_of(options.dtype),
      source.has_weights ? "loaded" : fmt::format("random (seed {})", options.seed),
      loaded.device->info().name, format_bytes(p.ledger.total(Tier::Device)),
      format_bytes(loaded.device->info().memory_bytes), format_bytes(p.ledger.total(Tier::Host)),
      std::min(resident_chunks, num_chunks), num_chunks);
  std::string notices;
  for (const std::string& notice : loaded.notices) notices += fmt::format("        {}\n", notice);
  return header + notices;
}

}  // namespace ebb
