#include "tools/sampler.h"

#include <fmt/format.h>

#include <algorithm>

#include "device/errors.h"
#include "model_zoo/generation.h"
#include "tools/flag_values.h"
#include "tools/printable.h"
#include "tools/size_parse.h"

namespace ebb {
namespace {

constexpr int64_t kMostTokens = 64;
constexpr double kTemperature = 0.8;         // the likeliest tokens alone repeat themselves
constexpr size_t kMostBytes = 1500;          // the line of a log is at most 4 KiB
constexpr size_t kCopied = size_t{1} << 20;  // elements

/// What the forward of a generation needs.
struct Prepared {
  Generation generation;
  PreparedInference inference;
};

Prepared prepare_sample(const TrainSetup& setup, size_t num_prompt, int64_t num_added) {
  const TrainerOptions& options = setup.prepared.options;
  Generation generation(
      setup.source.config,
      {.prompt_length = static_cast<int64_t>(num_prompt), .max_tokens = num_added}, options.dtype);
  PreparedInference inference = prepare_inference(
      generation.passes(),
      {.dtype = options.dtype, .chunk_bytes = options.chunk_bytes, .random_weights = false},
      {.device = {.num_threads = setup.device.profile.num_threads}});
  return {std::move(generation), std::move(inference)};
}

void check_memory(const TrainOptions& options, const TrainSetup& setup, size_t needed) {
  const Ledger& run = setup.prepared.ledger;
  const bool is_host = setup.device.profile.kind == DeviceKind::Host;
  const size_t planned = run.total(Tier::Host) + (is_host ? run.total(Tier::Device) : 0);
  const size_t budget =
      options.host_memory.value_or(default_host_memory(setup.device.profile.kind));
  if (planned + needed <= budget) return;
  throw PlanError(fmt::format(
      "--sample-steps: a sample needs {} of host memory beside the {} of the training, and {} are "
      "available: leave out --sample-steps, or sample a checkpoint with `ebb generate`",
      format_bytes(needed), format_bytes(planned), format_bytes(budget)));
}

void copy_weights(Trainer& trainer, Inference& inference) {
  std::vector<float> values;
  for (ParameterId id = 0; id < inference.layout().num_parameters(); ++id) {
    const uint64_t count = inference.layout().num_elements(id);
    for (uint64_t first = 0; first < count; first += values.size()) {
      values.resize(std::min<uint64_t>(kCopied, count - first));
      trainer.read_parameter(id, first, values);
      inference.write_parameter(id, first, values);
    }
  }
}

/// At most kMostBytes, and no part of a character.
std::string shortened(std::string text) {
  if (text.size() <= kMostBytes) return text;
  size_t end = kMostBytes;
  while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xc0) == 0x80) --end;
  return text.substr(0, end) + "...";
}

}  // namespace

Sampler::Sampler(const TrainOptions& options, const TrainSetup& setup)
    : setup_(setup),
      interval_(*options.sample_steps),
      prompt_(options.sample_prompt),
      is_message_(options.text.has_conversations),
      text_(setup.source, "--sample-steps needs"),
      ends_(end_tokens(setup.source, &text_)) {
  if (!predicts_next_token(setup.source.config)) {
    throw ConfigError("--sample-steps: a masked-language model does not generate text");
  }
  tokens_ = is_message_ ? text_.tokens_of(std::vector<ChatMessage>{{"user", prompt_}})
                        : text_.tokens_of(prompt_);
  const int64_t positions = sizes_of(setup.source.config).max_positions;
  const int64_t left = positions - static_cast<int64_t>(tokens_.size());
  if (tokens_.empty() || left < 1) {
    throw_bad_value(
        "--sample-prompt", prompt_,
        fmt::format("a text of 1 to {} tokens; it has {}", positions - 1, tokens_.size()));
  }
  num_added_ = std::min(kMostTokens, left);
  const Ledger ledger = prepare_sample(setup, tokens_.size(), num_added_).inference.ledger;
  bytes_ = ledger.total(Tier::Host) + ledger.total(Tier::Device);
  check_memory(options, setup, bytes_);
}

bool Sampler::due(uint64_t step) const { return setup_.is_due(step, interval_); }

std::string Sampler::sample(Trainer& trainer, uint64_t step) {
  Prepared prepared = prepare_sample(setup_, tokens_.size(), num_added_);
  DeviceOptions options = setup_.device;
  options.profile = {.num_threads = setup_.device.profile.num_threads};
  options.load_bytes_per_s = options.store_bytes_per_s = 0;
  options.memory_bytes = prepared.inference.ledger.total(Tier::Device);
  const auto device = create_device(options);
  Inference inference(*device, prepared.inference);
  copy_weights(trainer, inference);
  const Sampling sampling = {.temperature = kTemperature, .seed = setup_.prepared.options.seed};
  const auto first = step * static_cast<uint64_t>(kMostTokens);
  std::string added;
  std::span<const float> logits = prepared.generation.read_prompt(inference, tokens_);
  for (int64_t i = 0;; ++i) {
    const int32_t token = choose_token(logits, sampling, first + static_cast<uint64_t>(i));
    if (std::ranges::find(ends_, token) != ends_.end()) break;
    added += text_.text_of(token);
    if (i + 1 == num_added_) break;
    logits = prepared.generation.read_token(inference, token);
  }
  added += text_.rest();
  return shortened(printable(prompt_ + (is_message_ ? " -> " : "") + added));
}

}  // namespace ebb
