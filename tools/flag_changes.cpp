#include "tools/flag_changes.h"

#include <fmt/format.h>

#include <initializer_list>
#include <string_view>
#include <utility>

#include "chunk/layout.h"
#include "tools/size_parse.h"
#include "tools/train_setup.h"

namespace ebb {
namespace {

/// The schedule flags that fix a value are left to the planner.
Alternatives left_to_the_planner(RunFlags flags) {
  std::vector<std::string_view> names;
  ScheduleRequest& schedule = flags.options.schedule;
  if (schedule.micro_batch_order) names.push_back("--micro-batch-order auto");
  if (schedule.recompute) names.push_back("--recompute auto");
  if (schedule.activations) names.push_back("--activations auto");
  if (schedule.update) names.push_back("--update auto");
  schedule = {};
  if (names.empty()) return {};
  return {{fmt::format("{}", fmt::join(names, " ")), "", flags}};
}

/// Then host memory has one copy of the weights, and the device may make updates.
Alternatives without_delay(RunFlags flags) {
  if (!flags.options.delayed_updates) return {};
  flags.options.delayed_updates = false;
  return {{"--update auto", "updates are not delayed", flags}};
}

/// Without clipping, gradients do not wait in host memory for the norm.
Alternatives without_clipping(RunFlags flags) {
  const bool waits = flags.options.dtype == DType::F16 || flags.options.delayed_updates;
  if (flags.options.max_grad_norm == 0 || waits) return {};
  flags.options.max_grad_norm = 0;
  return {{"--clip 0", "gradients are not clipped", flags}};
}

/// Fewer sequences in a micro-batch, with the same number of micro-batches.
Alternatives smaller_steps(RunFlags flags) {
  Alternatives all;
  while (flags.options.micro_batch_size > 1) {
    flags.options.micro_batch_size /= 2;
    all.push_back({fmt::format("--micro-batch-size {}", flags.options.micro_batch_size),
                   "fewer tokens a step", flags});
  }
  return all;
}

/// Gradients and activations wait in host memory at the same time, so one change may be too little.
Alternatives without_clipping_then_smaller_steps(RunFlags flags) {
  Alternatives all = without_clipping(flags);
  if (all.empty()) return all;
  for (FlagChange& change : smaller_steps(all.front().flags)) {
    all.push_back({fmt::format("{} {}", all.front().text, change.text),
                   fmt::format("{}, {}", all.front().price, change.price),
                   std::move(change.flags)});
  }
  return all;
}

/// fp32 takes twice the device memory. fp16 takes as much as bf16 on the device, but its fp32
/// masters take 2 bytes per parameter more in host memory.
Alternatives as_bf16(RunFlags flags) {
  if (flags.options.dtype == DType::BF16) return {};
  const bool was_fp32 = flags.options.dtype == DType::F32;
  std::string text = "--dtype bf16";
  flags.options.dtype = DType::BF16;
  if (flags.options.gradient_dtype == DType::F16) {
    flags.options.gradient_dtype = DType::BF16;
    text += " --gradient-dtype bf16";
  }
  return {{text, was_fp32 ? "less precise weights and products" : "another precision", flags}};
}

/// bf16 is not faster than fp16.
Alternatives fp32_as_bf16(RunFlags flags) {
  return flags.options.dtype == DType::F32 ? as_bf16(std::move(flags)) : Alternatives{};
}

/// The backward of cuDNN's attention stores gradients of scores; that of Ebb's kernels does not.
Alternatives own_attention(RunFlags flags) {
  if (flags.options.attention == AttentionKernels::Ebb) return {};
  flags.options.attention = AttentionKernels::Ebb;
  return {{"--attention ebb", "other rounding", flags}};
}

/// The number of tokens of a step stays the same.
FlagChange micro_batches_as(const RunFlags& flags) {
  return {fmt::format("--micro-batch-size {} --gradient-accumulation {}",
                      flags.options.micro_batch_size, flags.options.gradient_accumulation),
          "other rounding", flags};
}

Alternatives smaller_micro_batches(RunFlags flags) {
  Alternatives all;
  while (flags.options.micro_batch_size % 2 == 0) {
    flags.options.micro_batch_size /= 2;
    flags.options.gradient_accumulation *= 2;
    all.push_back(micro_batches_as(flags));
  }
  return all;
}

/// The results of an inference do not depend on its micro-batches.
Alternatives fewer_sequences(RunFlags flags) {
  Alternatives all = smaller_steps(std::move(flags));
  for (FlagChange& change : all) change.price = "";
  return all;
}

Alternatives fewer_tokens(RunFlags flags) {
  Alternatives all;
  while (flags.max_tokens > 1) {
    flags.max_tokens /= 2;
    all.push_back({fmt::format("--max-tokens {}", flags.max_tokens), "a shorter text", flags});
  }
  return all;
}

Alternatives shorter_sequences(RunFlags flags) {
  constexpr int64_t kShortest = 64;
  Alternatives all;
  int64_t length = batch_shape(flags.options, model_source(flags.options)).length;
  while (length / 2 >= kShortest) {
    length /= 2;
    flags.options.seq_length = static_cast<uint64_t>(length);
    all.push_back({fmt::format("--seq-length {}", length), "shorter sequences", flags});
  }
  return all;
}

/// The change to the chunk size of these flags.
FlagChange change_of_chunks(const RunFlags& flags) {
  const size_t bytes = flags.options.chunk_size;
  const bool is_whole_mib = bytes % (size_t{1} << 20) == 0;
  return {"--chunk-size " + (is_whole_mib ? flag_size(bytes) : fmt::format("{}KiB", bytes >> 10)),
          "", flags};
}

/// A chunk has a whole number of pieces.
bool halve_chunks(RunFlags& flags) {
  size_t& bytes = flags.options.chunk_size;
  bytes /= 2;
  return bytes > 0 && bytes % (kPieceElements * size_of(flags.options.dtype)) == 0;
}

Alternatives smaller_chunks(RunFlags flags) {
  constexpr size_t kSmallest = size_t{512} << 10;
  Alternatives all;
  while (halve_chunks(flags) && flags.options.chunk_size >= kSmallest) {
    all.push_back(change_of_chunks(flags));
  }
  return all;
}

Alternatives half_the_chunk(RunFlags flags) {
  if (!halve_chunks(flags)) return {};
  return {change_of_chunks(flags)};
}

Alternatives twice_the_chunk(RunFlags flags) {
  flags.options.chunk_size *= 2;
  return {change_of_chunks(flags)};
}

Alternatives larger_micro_batches(RunFlags flags) {
  if (flags.options.gradient_accumulation % 2 != 0) return {};
  flags.options.micro_batch_size *= 2;
  flags.options.gradient_accumulation /= 2;
  return {micro_batches_as(flags)};
}

/// Fewer sums of groups are stored and added.
Alternatives fewest_groups(RunFlags flags) {
  const uint32_t num_ranks = planned_place(flags.options).num_ranks;
  const uint64_t groups = flags.options.groups.value_or(flags.options.gradient_accumulation);
  if (num_ranks == 1 || groups <= num_ranks) return {};
  flags.options.groups = num_ranks;
  return {{fmt::format("--groups {}", num_ranks), "other rounding", flags}};
}

/// The sums of groups take half of the bytes.
Alternatives rounded_sums(RunFlags flags) {
  const uint32_t num_ranks = planned_place(flags.options).num_ranks;
  if (num_ranks == 1 || flags.options.group_dtype == DType::BF16) return {};
  flags.options.group_dtype = DType::BF16;
  return {{"--group-dtype bf16", "gradient sums of groups are rounded to bf16", flags}};
}

FlagChange with_accumulation(RunFlags flags, uint64_t micro_batches, const char* price) {
  flags.options.gradient_accumulation = micro_batches;
  return {fmt::format("--gradient-accumulation {}", micro_batches), price, flags};
}

Alternatives longer_step(RunFlags flags) {
  return {
      with_accumulation(flags, 2 * flags.options.gradient_accumulation, "twice the tokens a step")};
}

Alternatives shorter_step(RunFlags flags) {
  const uint64_t now = flags.options.gradient_accumulation;
  if (now % 2 != 0) return {};
  return {with_accumulation(flags, now / 2, "half the tokens a step")};
}

struct Kind {
  Alternatives (*make)(RunFlags);
  bool serves[kNumGoals];  // [Goal]
  bool gpu_only = false;
};

// clang-format off
constexpr Kind kKinds[] = {
    // change                fits host, device, inference, faster, faster plan
    {left_to_the_planner,      {true,  true,  false,     true,   true}},
    {without_delay,            {true,  true,  false,     true,   true}},
    {half_the_chunk,           {false, false, false,     true,   false}},
    {twice_the_chunk,          {false, false, false,     true,   false}},
    {without_clipping,         {false, true,  false,     false,  true}},
    {without_clipping_then_smaller_steps,
                               {true,  false, false,     false,  false}},
    {larger_micro_batches,     {false, false, false,     true,   true}},
    {as_bf16,                  {true,  true,  true,      false,  false}},
    {fp32_as_bf16,             {false, false, false,     true,   true}},
    {own_attention,            {false, true,  false,     false,  false}, /*gpu_only=*/true},
    {smaller_steps,            {true,  false, false,     false,  false}},
    {smaller_micro_batches,    {false, true,  false,     false,  false}},
    {fewer_sequences,          {false, false, true,      false,  false}},
    {fewer_tokens,             {false, false, true,      false,  false}},
    {smaller_chunks,           {false, true,  true,      false,  false}},
    {shorter_sequences,        {false, true,  false,     false,  false}},
    {fewest_groups,            {true,  false, false,     false,  true}},
    {rounded_sums,             {true,  false, false,     false,  true}},
    {longer_step,              {false, false, false,     true,   true}},
    {shorter_step,             {false, false, false,     false,  true}},
};
// clang-format on

}  // namespace

std::vector<Alternatives> flag_changes(const RunFlags& requested, Goal goal, bool on_gpu) {
  std::vector<Alternatives> all;
  for (const Kind& kind : kKinds) {
    if (kind.serves[static_cast<int>(goal)] && (on_gpu || !kind.gpu_only))
      all.push_back(kind.make(requested));
  }
  return all;
}

}  // namespace ebb
