#include "tests/scheduler/plan_cases.h"

#include <fmt/format.h>

#include <algorithm>
#include <sstream>
#include <string>

#include "autograd/arena.h"
#include "scheduler/plan/block_need.h"

namespace ebb::test {
namespace {

using Rng = std::mt19937_64;

/// A random number from 1 to `most`.
uint64_t up_to(Rng& rng, uint64_t most) { return 1 + rng() % most; }

/// Writes the calls of a chain of layers, forward and backward, with activations in a real arena.
class Writer {
 public:
  Writer(const CaseOptions& options, Rng& rng)
      : options_(options), rng_(rng), arena_(nullptr, size_t{1} << 40) {}

  void add_layer(std::vector<ParameterId> parameters) { layers_.push_back(std::move(parameters)); }
  void set_head_rows(uint64_t rows) { head_rows_ = rows; }
  void micro_batch(uint32_t index);
  Trace take() {
    trace_.arena_bytes = arena_.peak_bytes();
    std::ranges::stable_sort(trace_.idle_intervals, {}, &IdleInterval::span);
    return std::move(trace_);
  }

 private:
  void call(const char* name, Phase phase, const std::vector<ParameterUse>& uses) {
    trace_.calls.push_back({.name = name,
                            .phase = phase,
                            .micro_batch = micro_batch_,
                            .first_use = static_cast<uint32_t>(trace_.uses.size()),
                            .num_uses = static_cast<uint32_t>(uses.size()),
                            .cost = {.flops = static_cast<double>(up_to(rng_, 1000)),
                                     .bytes = static_cast<double>(up_to(rng_, 1000))}});
    trace_.uses.insert(trace_.uses.end(), uses.begin(), uses.end());
  }
  CallIndex now() const { return CallIndex(trace_.calls.size() - 1); }
  uint32_t allocate() {
    const size_t bytes = up_to(rng_, options_.max_activation_bytes);
    trace_.activations.push_back({arena_.allocate(bytes), bytes, now(), now()});
    return static_cast<uint32_t>(trace_.activations.size() - 1);
  }
  void release(uint32_t span) {
    trace_.activations[span].last_call = now();
    arena_.release(trace_.activations[span].offset, trace_.activations[span].bytes);
  }
  std::vector<ParameterUse> uses(size_t layer, bool weight, bool gradient) const {
    std::vector<ParameterUse> result;
    for (ParameterId p : layers_[layer]) result.push_back({p, 0, weight, gradient});
    return result;
  }
  void loss();
  void sliced_loss();

  const CaseOptions& options_;
  Rng& rng_;
  Arena arena_;
  std::vector<std::vector<ParameterId>> layers_;
  uint64_t head_rows_ = 0;
  Trace trace_;
  uint32_t micro_batch_ = 0;
};

void Writer::loss() {
  std::vector<ParameterUse> used;
  if (options_.tied) used.push_back({layers_[0][0], 1, true, options_.training});
  call("loss", options_.training ? Phase::Forward : Phase::Evaluate, used);
  release(allocate());
}

/// A large classifier: one call per slice for the loss, then one per slice, in reverse, for the
/// gradients.
void Writer::sliced_loss() {
  const int64_t all = static_cast<int64_t>(head_rows_), n = options_.num_head_slices;
  const auto slice = [&](int64_t i, bool gradient) {
    const int64_t first = all * i / n;
    return ParameterUse{.parameter = layers_[0][0],
                        .use = 1,
                        .gradient = gradient,
                        .rows = {first, all * (i + 1) / n - first}};
  };
  for (int64_t i = 0; i < n; ++i) {
    call("logits", options_.training ? Phase::Forward : Phase::Evaluate, {slice(i, false)});
    release(allocate());
  }
  if (!options_.training) return;
  const auto first = trace_.calls.size();
  for (int64_t i = n; i-- > 0;) call("gradient", Phase::Backward, {slice(i, true)});
  trace_.activations.push_back({arena_.allocate(1), 1, CallIndex(first), now()});
  arena_.release(trace_.activations.back().offset, 1);
}

void Writer::micro_batch(uint32_t index) {
  micro_batch_ = index;
  const Phase forward = options_.training ? Phase::Forward : Phase::Evaluate;
  // By layer: its activation, and the last call of the forward that reads it.
  std::vector<uint32_t> kept;
  std::vector<CallIndex> last_read;
  for (size_t i = 0; i < layers_.size(); ++i) {
    call("layer", forward, uses(i, true, false));
    if (i > 0) last_read.push_back(now());
    kept.push_back(allocate());
    if (!options_.training && i > 0) release(kept[i - 1]);
  }
  if (options_.tied && options_.num_head_slices > 1) {
    sliced_loss();
  } else {
    loss();
  }
  if (!options_.training) return release(kept.back());
  last_read.push_back(now());
  for (size_t i = layers_.size(); i-- > 0;) {
    const CallIndex next(now() + 1);
    if (options_.idle && last_read[i] + 1 < next) {
      trace_.idle_intervals.push_back({kept[i], last_read[i], next});
    }
    if (options_.recompute) {
      call("again", Phase::Backward, uses(i, true, false));
      release(allocate());
    }
    const bool reads_weight = i > 0;  // the backward of an embedding, layer 0, does not
    call("back", Phase::Backward, uses(i, reads_weight, true));
    const uint32_t scratch = allocate();
    release(kept[i]);
    release(scratch);
  }
}

}  // namespace

Case make_case(const CaseOptions& options, uint64_t seed) {
  Rng rng(seed);
  Writer writer(options, rng);
  std::vector<ParameterInfo> infos;
  std::vector<ParameterId> order;
  for (uint32_t layer = 0; layer < options.num_layers; ++layer) {
    std::vector<ParameterId> parameters;
    for (uint64_t n = up_to(rng, 3); n > 0; --n) {
      const ParameterId id = static_cast<ParameterId>(infos.size());
      const int64_t elements = static_cast<int64_t>(up_to(rng, options.max_elements));
      infos.push_back({.name = fmt::format("p{}", id), .shape = {elements}});
      order.push_back(id);
      parameters.push_back(id);
    }
    writer.add_layer(std::move(parameters));
  }
  if (options.tied) {
    infos[0].num_uses = 2;
    infos[0].shape = {std::max<int64_t>(infos[0].shape[0], options.num_head_slices), 1};
    writer.set_head_rows(static_cast<uint64_t>(infos[0].shape[0]));
  }
  for (uint32_t k = 0; k < options.num_micro_batches; ++k) writer.micro_batch(k);
  return {writer.take(), Layout(std::move(infos), std::move(order), options.weight_type,
                                options.gradient_type, options.chunk_bytes)};
}

Case make_any_case(uint64_t seed) {
  Rng rng(seed * 7919 + 1);
  CaseOptions options;
  options.num_layers = static_cast<uint32_t>(up_to(rng, 6));
  options.num_micro_batches = static_cast<uint32_t>(up_to(rng, 3));
  options.tied = rng() % 2;
  options.recompute = rng() % 2;
  options.max_elements = rng() % 3 == 0 ? 20'000 : 200'000;
  if (rng() % 3 == 0) options.gradient_type = DType::F32;
  if (rng() % 4 == 0) {
    options.weight_type = options.gradient_type = DType::F32;
    options.chunk_bytes = 256 << 10;
  }
  options.idle = rng() % 2;
  if (rng() % 3 == 0) options.num_head_slices = static_cast<uint32_t>(1 + up_to(rng, 5));
  return make_case(options, seed);
}

Case make_case_from_text(const char* calls, uint32_t num_parameters, uint64_t elements,
                         uint32_t num_forward) {
  Trace trace;
  std::istringstream words(calls);
  for (std::string word; words >> word;) {
    const bool writes = word[0] == 'w';
    trace.calls.push_back(
        {.name = "call",
         .phase = trace.calls.size() < num_forward ? Phase::Forward : Phase::Backward,
         .first_use = static_cast<uint32_t>(trace.uses.size()),
         .num_uses = 1,
         .cost = {.flops = 100, .bytes = 10}});
    trace.uses.push_back({static_cast<ParameterId>(std::stoul(word.substr(1))), 0, true, writes});
  }
  std::vector<ParameterInfo> infos;
  std::vector<ParameterId> order;
  for (ParameterId p = 0; p < num_parameters; ++p) {
    infos.push_back({.name = fmt::format("p.{}", p), .shape = {static_cast<int64_t>(elements)}});
    order.push_back(p);
  }
  return {std::move(trace),
          Layout(std::move(infos), std::move(order), DType::BF16, DType::BF16, 128 << 10)};
}

Planned plan_case(const Case& c, uint32_t num_blocks, bool clipped, bool defer,
                  uint32_t resident_chunks, uint32_t device_updates, uint32_t kept_sums) {
  const PlanOptions options{.num_blocks = num_blocks,
                            .update_after_norm = clipped,
                            .schedule = {.update = defer ? UpdateOrder::Overlap : UpdateOrder::Wait,
                                         .deferred_share = kDeferredShare,
                                         .gradient_buffers = 2,
                                         .resident_chunks = resident_chunks,
                                         .device_updates = device_updates,
                                         .kept_sums = kept_sums}};
  return {options, make_plan(c.trace, c.layout, options)};
}

Plan plan_of_any_case(const Case& c, uint64_t seed) {
  return plan_case(c, smallest_blocks(c) + seed % 4, seed % 2, seed % 3 == 0).plan;
}

uint32_t smallest_blocks(const Case& c, bool update) {
  return smallest_need(c.trace, c.layout, update).num_blocks;
}

}  // namespace ebb::test
