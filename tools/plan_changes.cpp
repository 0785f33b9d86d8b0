#include "tools/plan_changes.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "device/errors.h"
#include "tools/size_parse.h"
#include "tools/train_setup.h"

namespace ebb {
namespace {

/// A change, in steps of growing size: the first that fits counts.
using Alternatives = std::vector<std::pair<std::string, TrainOptions>>;

/// As many tokens a step, in smaller micro-batches.
Alternatives smaller_micro_batches(const TrainOptions& requested) {
  Alternatives all;
  TrainOptions options = requested;
  while (options.micro_batch_size % 2 == 0) {
    options.micro_batch_size /= 2;
    options.gradient_accumulation *= 2;
    all.emplace_back(fmt::format("--micro-batch-size {} --gradient-accumulation {}",
                                 options.micro_batch_size, options.gradient_accumulation),
                     options);
  }
  return all;
}

/// cuDNN's backward stores gradients of scores.
Alternatives our_attention(const TrainOptions& requested, const PlanContext& context) {
  const auto now = requested.attention ? requested.attention : context.attention;
  if (context.device == DeviceKind::Host || now == AttentionKernels::Ebb) return {};
  TrainOptions options = requested;
  options.attention = AttentionKernels::Ebb;
  return {{"--attention ebb", options}};
}

Alternatives shorter_sequences(const TrainOptions& requested) {
  constexpr int64_t kShortest = 64;
  int64_t length = batch_shape(requested, model_source(requested)).length;
  Alternatives all;
  TrainOptions options = requested;
  while (length / 2 >= kShortest) {
    length /= 2;
    options.seq_length = static_cast<uint64_t>(length);
    all.emplace_back(fmt::format("--seq-length {}", length), options);
  }
  return all;
}

Alternatives smaller_chunks(const TrainOptions& requested) {
  constexpr size_t kSmallest = size_t{2} << 20;
  Alternatives all;
  TrainOptions options = requested;
  while (options.chunk_size % 2 == 0 && options.chunk_size / 2 >= kSmallest) {
    options.chunk_size /= 2;
    all.emplace_back(fmt::format("--chunk-size {}", flag_size(options.chunk_size)), options);
  }
  return all;
}

/// What flags hold fast, left to the planner.
Alternatives left_to_the_planner(const TrainOptions& requested) {
  TrainOptions options = requested;
  options.recompute = Recompute::Auto;
  options.activations = ActivationPlacement::Auto;
  options.micro_batch_order = MicroBatchOrder::Auto;
  const bool same = requested.recompute == options.recompute &&
                    requested.activations == options.activations &&
                    requested.micro_batch_order == options.micro_batch_order;
  if (same) return {};
  return {{"--recompute auto --activations auto --micro-batch-order auto", options}};
}

Alternatives without_clipping(const TrainOptions& requested) {
  if (requested.max_grad_norm == 0 || requested.dtype == DType::F16) return {};
  TrainOptions options = requested;
  options.max_grad_norm = 0;
  return {{"--clip 0", options}};
}

/// As wide as fp16 on the device, and its masters take 2 bytes a parameter less at home.
Alternatives as_bf16(const TrainOptions& requested) {
  if (requested.dtype == DType::BF16) return {};
  TrainOptions options = requested;
  options.dtype = DType::BF16;
  if (requested.gradient_dtype != DType::F16) return {{"--dtype bf16", options}};
  options.gradient_dtype = DType::BF16;
  return {{"--dtype bf16 --gradient-dtype bf16", options}};
}

std::optional<PlannedStep> try_plan(const TrainOptions& options, const PlanContext& context) {
  try {
    return plan_step_of(options, context);
  } catch (const ConfigError&) {  // PlanErrors, and what cannot be with other flags that were told
    return std::nullopt;
  }
}

PlanChange describe(std::string text, const PlannedStep& step) {
  const Ledger& ledger = step.prepared.ledger;
  const double seconds = step.chosen().seconds;
  return {.text = std::move(text),
          .seconds = seconds,
          .tokens_per_second = seconds > 0 ? step.tokens_per_second() : 0,
          .device_bytes = ledger.total(Tier::Device),
          .host_bytes = ledger.total(Tier::Host)};
}

void add_first_that_fits(std::vector<PlanChange>& changes, const Alternatives& alternatives,
                         const PlanContext& context) {
  for (const auto& [text, options] : alternatives) {
    const auto step = try_plan(options, context);
    if (step) return changes.push_back(describe(text, *step));
  }
}

/// Then it is home that is too small, which the shape of a micro-batch does not change.
bool fits_device(TrainOptions options, PlanContext context) {
  options.host_memory = kUnlimitedBytes;
  context.total_memory_bytes.reset();
  context.is_here = false;
  return try_plan(options, context).has_value();
}

/// As much on the device as can be: it is no room at all that is asked for.
std::optional<size_t> least_at_home(TrainOptions options, const PlanContext& context) {
  options.host_memory = 1;
  try {
    plan_step_of(options, context);
  } catch (const HomeTooSmall& refused) {
    return refused.least_bytes();
  } catch (const ConfigError&) {
  }
  return std::nullopt;
}

/// More memory, as much as works; where the device's memory is the host's, less of it.
void add_more_memory(std::vector<PlanChange>& changes, const TrainOptions& requested,
                     const PlanContext& context) {
  TrainOptions options = requested;
  PlanContext roomy = context;
  roomy.total_memory_bytes.reset();
  roomy.is_here = false;
  options.host_memory = kUnlimitedBytes;
  options.device_memory = kUnlimitedBytes;
  const auto free = try_plan(options, roomy);
  if (!free) return;
  const size_t least = free->prepared.smallest_device_bytes;
  if (context.total_memory_bytes && !requested.device_memory) {
    options = requested;
    options.device_memory = least;
    const std::string text = fmt::format("--device-memory {}", flag_size(least));
    return add_first_that_fits(changes, {{text, options}}, context);
  }
  const bool device_fits =
      least <= requested.device_memory.value_or(context.machine.device_memory_bytes);
  options.device_memory = requested.device_memory;
  if (!device_fits) options.device_memory = least;
  if (!device_fits && context.is_here && least > context.machine.device_memory_bytes) return;
  options.host_memory = least_at_home(options, roomy);
  if (!options.host_memory) return;
  const bool host_fits =
      *options.host_memory <= requested.host_memory.value_or(context.machine.host_memory_bytes);
  if (host_fits) options.host_memory = requested.host_memory;
  const auto step = try_plan(options, context);
  if (!step) return;
  std::string text;
  if (!device_fits) text += fmt::format("--device-memory {} ", flag_size(least));
  if (!host_fits) text += fmt::format("--host-memory {} ", flag_size(*options.host_memory));
  if (text.empty()) return;  // it is both together that do not fit
  text.pop_back();           // the space
  changes.push_back(describe(text, *step));
}

}  // namespace

std::vector<PlanChange> changes_that_fit(const TrainOptions& options, const PlanContext& context) {
  std::vector<PlanChange> changes;
  std::vector<Alternatives> all = {left_to_the_planner(options), without_clipping(options),
                                   as_bf16(options)};
  if (!fits_device(options, context)) {
    all.push_back(our_attention(options, context));
    all.push_back(smaller_micro_batches(options));
    all.push_back(smaller_chunks(options));
    all.push_back(shorter_sequences(options));
  }
  for (const Alternatives& alternatives : all) add_first_that_fits(changes, alternatives, context);
  add_more_memory(changes, options, context);
  std::ranges::stable_sort(changes, [](const PlanChange& a, const PlanChange& b) {
    return a.tokens_per_second > b.tokens_per_second;
  });
  return changes;
}

}  // namespace ebb
