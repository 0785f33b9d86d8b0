#include "tools/plan_gains.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "device/errors.h"
#include "tools/size_parse.h"

namespace ebb {
namespace {

struct Change {
  std::string text;
  std::string price;
  TrainOptions options;
};
using Changes = std::vector<Change>;

void add_left_to_the_planner(Changes& changes, const TrainOptions& requested) {
  TrainOptions options = requested;
  std::vector<std::string_view> flags;
  const auto leave = [&flags](auto& value, auto automatic, std::string_view flag) {
    if (value != automatic) flags.push_back(flag);
    value = automatic;
  };
  leave(options.micro_batch_order, MicroBatchOrder::Auto, "--micro-batch-order auto");
  leave(options.recompute, Recompute::Auto, "--recompute auto");
  leave(options.activations, ActivationPlacement::Auto, "--activations auto");
  leave(options.update, UpdateOrder::Auto, "--update auto");
  if (!flags.empty()) {
    changes.push_back({fmt::format("{}", fmt::join(flags, " ")), "", std::move(options)});
  }
}

void add_longer_micro_batches(Changes& changes, const TrainOptions& requested) {
  if (requested.gradient_accumulation % 2 != 0) return;
  TrainOptions options = requested;
  options.micro_batch_size *= 2;
  options.gradient_accumulation /= 2;
  changes.push_back({fmt::format("--micro-batch-size {} --gradient-accumulation {}",
                                 options.micro_batch_size, options.gradient_accumulation),
                     "other rounding", std::move(options)});
}

void add_other_chunks(Changes& changes, const TrainOptions& requested) {
  const size_t piece_bytes = kPieceElements * size_of(requested.dtype);
  for (const size_t bytes : {requested.chunk_size / 2, requested.chunk_size * 2}) {
    if (bytes == 0 || bytes % piece_bytes != 0) continue;
    TrainOptions options = requested;
    options.chunk_size = bytes;
    changes.push_back({fmt::format("--chunk-size {}KiB", bytes >> 10), "", std::move(options)});
  }
}

/// Half as much again, and all that helps: the smaller may be enough.
void add_device_memory(Changes& changes, const TrainOptions& requested, const PlanContext& context,
                       const Preparation& now) {
  const size_t device_bytes = context.machine.device_memory_bytes;
  const bool from_flag = requested.device_memory.has_value();
  if (!from_flag && context.total_memory_bytes) return;  // it has what it needs
  const size_t budget = requested.device_memory.value_or(device_bytes);
  const size_t most = now.full_device_bytes;
  if (budget >= most) return;
  for (const size_t bytes : {budget + budget / 2, most}) {
    if (bytes > most) continue;
    TrainOptions options = requested;
    options.device_memory = bytes;
    const bool larger_device = bytes > device_bytes;
    changes.push_back({fmt::format("--device-memory {}", flag_size(bytes)),
                       larger_device ? "a device with more memory" : "", std::move(options)});
  }
}

void add_half_precision(Changes& changes, const TrainOptions& requested) {
  if (requested.dtype != DType::F32) return;
  TrainOptions options = requested;
  options.dtype = DType::BF16;
  changes.push_back({"--dtype bf16", "less precise weights and products", std::move(options)});
}

void add_longer_step(Changes& changes, const TrainOptions& requested) {
  TrainOptions options = requested;
  options.gradient_accumulation *= 2;
  changes.push_back({fmt::format("--gradient-accumulation {}", options.gradient_accumulation),
                     "twice the tokens a step", std::move(options)});
}

/// The smaller the price, the earlier.
Changes changes_of(const TrainOptions& requested, const PlanContext& context,
                   const Preparation& now) {
  Changes changes;
  add_left_to_the_planner(changes, requested);
  add_other_chunks(changes, requested);
  add_device_memory(changes, requested, context, now);
  add_longer_micro_batches(changes, requested);
  add_half_precision(changes, requested);
  add_longer_step(changes, requested);
  return changes;
}

std::optional<PlannedStep> try_plan(const TrainOptions& options, const PlanContext& context) {
  try {
    return plan_step_of(options, context);
  } catch (const PlanError&) {
    return std::nullopt;
  }
}

/// 0 where it does not fit.
double tokens_per_second(const std::optional<PlannedStep>& step) {
  return step && step->chosen().seconds > 0 ? step->tokens_per_second() : 0;
}

}  // namespace

std::optional<PlanGain> best_gain(const TrainOptions& options, const PlanContext& context) {
  constexpr double kAsGood = 1.01;
  const auto now = try_plan(options, context);
  const double rate = tokens_per_second(now);
  if (rate == 0) return std::nullopt;
  PlanGain best;
  for (Change& change : changes_of(options, context, now->prepared)) {
    const double changed = tokens_per_second(try_plan(change.options, context));
    if (changed / rate <= best.ratio * kAsGood) continue;
    best = {std::move(change.text), std::move(change.price), changed / rate, changed};
  }
  if (best.ratio < kLeastGain) return std::nullopt;
  return best;
}

std::string format_gain(const std::optional<PlanGain>& gain) {
  if (!gain) {
    return fmt::format("no single change of a flag is predicted to give {:.0f} % more tokens/s",
                       100 * (kLeastGain - 1));
  }
  const std::string price = gain->price.empty() ? "" : " (" + gain->price + ")";
  return fmt::format("{}{}: {:.2f} x the tokens/s, as predicted", gain->change, price, gain->ratio);
}

}  // namespace ebb
