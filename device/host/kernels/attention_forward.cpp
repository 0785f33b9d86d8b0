#include <cmath>

#include "device/host/kernels/attention.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "device/host/kernels/attention_forward.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "device/host/kernels/attention-inl.h"

#ifndef EBB_HOST_KERNELS_ATTENTION_FORWARD_ARGUMENTS_
#define EBB_HOST_KERNELS_ATTENTION_FORWARD_ARGUMENTS_
namespace ebb {
namespace {

constexpr int64_t kQueriesATask = 256;  // share one pass over keys and values

int64_t forward_slot_floats(const AttentionCall& call) {
  return (2 * kQueriesATask + 3 * kTile) * call.padded_head() + 2 * kQueriesATask + kTile * kTile;
}

size_t forward_workspace_bytes(const AttentionCall& call, int num_threads) {
  return Scratch::bytes_of<float>(forward_slot_floats(call) * num_threads) +
         Scratch::bytes_of<int32_t>(2 * call.num_tokens * num_threads);
}

}  // namespace
}  // namespace ebb
#endif

HWY_BEFORE_NAMESPACE();
namespace ebb {
namespace HWY_NAMESPACE {
namespace {

constexpr float kMinusInfinity = -std::numeric_limits<float>::infinity();

/// One block of queries of one head, and its scratch.
struct ForwardTask {
  const AttentionCall& call;
  int64_t b, head, first_query, num_queries;
  Visible visible;
  float *q, *o, *k, *kt, *v, *max_score, *sum, *scores;
  float scale;

  ForwardTask(const AttentionCall& c, int64_t task, float* floats, int32_t* ints)
      : call(c), visible{ints, ints + c.num_tokens}, scale(c.scale()) {
    const int64_t blocks = ceil_div(c.num_tokens, kQueriesATask);
    // The last queries see most keys: they come first.
    first_query = (blocks - 1 - task % blocks) * kQueriesATask;
    num_queries = std::min(kQueriesATask, c.num_tokens - first_query);
    head = task / blocks % c.num_heads;
    b = task / blocks / c.num_heads;
    const int64_t width = c.padded_head();
    q = floats;
    o = q + kQueriesATask * width;
    k = o + kQueriesATask * width;
    kt = k + kTile * width;
    v = kt + kTile * width;
    max_score = v + kTile * width;
    sum = max_score + kQueriesATask;
    scores = sum + kQueriesATask;
  }

  HeadRows rows_of(int64_t part) const {
    return {call, b, 3 * call.channels, part * call.channels + head * call.head_size};
  }

  template <class T>
  void run() const {
    const int64_t width = call.padded_head();
    visible.find(call, b);
    for (int64_t i = 0; i < num_queries; i += kTile) {
      rows_of(0).load_tile<T>(call.qkv, first_query + i, std::min(kTile, num_queries - i),
                              q + i * width);
    }
    std::fill_n(o, kQueriesATask * width, 0.0f);
    std::fill_n(max_score, kQueriesATask, kMinusInfinity);
    std::fill_n(sum, kQueriesATask, 0.0f);
    const int64_t end = visible.end[first_query + num_queries - 1];
    for (int64_t key = visible.first[first_query] / kTile * kTile; key < end; key += kTile) {
      see_keys<T>(key);
    }
    write<T>();
  }

  template <class T>
  void see_keys(int64_t key) const {
    const int64_t count = std::min(kTile, call.num_tokens - key);
    rows_of(1).load_tile<T>(call.qkv, key, count, k);
    transpose_tile(k, call.padded_head(), kt);
    rows_of(2).load_tile<T>(call.qkv, key, count, v);
    for (int64_t i = 0; i < num_queries; i += kTile) {
      const int64_t tile_queries = std::min(kTile, num_queries - i);
      const int64_t first = first_query + i, last = first + tile_queries - 1;
      if (visible.first[first] < key + kTile && visible.end[last] > key) {
        see_tile(i, tile_queries, key);
      }
    }
  }

  void see_tile(int64_t i, int64_t tile_queries, int64_t key) const {
    const int64_t width = call.padded_head();
    multiply(tile_queries, kTile, call.head_size, q + i * width, kt, scores,
             {width, 1, kTile, kTile}, true);
    for (int64_t r = 0; r < tile_queries; ++r) weigh_row(i + r, key, scores + r * kTile);
    multiply(tile_queries, width, kTile, scores, v, o + i * width, {kTile, 1, width, width}, false);
  }

  /// Turns a row of scores into weights exp(score - max) and rescales what was summed under a
  /// smaller maximum.
  void weigh_row(int64_t i, int64_t key, float* row) const {
    const Span span(visible, first_query + i, key);
    if (span.empty()) return static_cast<void>(std::fill_n(row, kTile, 0.0f));
    span.fill_outside(row, kMinusInfinity);
    const float before = max_score[i];
    Wide top = broadcast(kMinusInfinity);
    for (int64_t j = 0; j < kTile; j += kWide) top = max(top, load(row + j));
    const float now = std::max(before, reduce_max(top) * scale);
    const Wide minus_now = broadcast(-now), factor = broadcast(scale);
    Wide total = broadcast(0.0f);
    for (int64_t j = 0; j < kTile; j += kWide) {
      const Wide weight = exp(fma(load(row + j), factor, minus_now));
      store(row + j, weight);
      total = total + weight;
    }
    if (now != before) rescale(i, before - now);
    max_score[i] = now;
    sum[i] += reduce_add(total);
  }

  void rescale(int64_t i, float exponent) const {
    const Wide factor = exp(broadcast(exponent));
    alignas(64) float lanes[kWide];
    store(lanes, factor);
    sum[i] *= lanes[0];
    float* row = o + i * call.padded_head();
    for (int64_t j = 0; j < call.padded_head(); j += kWide) store(row + j, load(row + j) * factor);
  }

  template <class T>
  void write() const {
    const int64_t width = call.padded_head();
    float* log_sum_exp =
        call.log_sum_exp + (b * call.num_heads + head) * call.num_tokens + first_query;
    for (int64_t i = 0; i < num_queries; ++i) {
      const Wide total = broadcast(sum[i]);
      float* row = o + i * width;
      for (int64_t j = 0; j < width; j += kWide) store(row + j, load(row + j) / total);
      log_sum_exp[i] = static_cast<float>(static_cast<double>(max_score[i]) +
                                          std::log(static_cast<double>(sum[i])));
    }
    const HeadRows rows(call, b, call.channels, head * call.head_size);
    rows.store_tile<T>(call.out, first_query, num_queries, o);
  }
};

void attend(const AttentionCall& call, ThreadTeam& team, const Workspace& workspace) {
  Scratch scratch(workspace);
  const int64_t slot_floats = forward_slot_floats(call);
  float* floats = scratch.take<float>(slot_floats * team.num_threads());
  int32_t* ints = scratch.take<int32_t>(2 * call.num_tokens * team.num_threads());
  const int64_t num_tasks = call.batch * call.num_heads * ceil_div(call.num_tokens, kQueriesATask);
  with_float_type(call.dtype, [&](auto zero) {
    for_each_slot(team, num_tasks, [&](int64_t task, int64_t slot) {
      const ForwardTask forward(call, task, floats + slot * slot_floats,
                                ints + slot * 2 * call.num_tokens);
      forward.run<decltype(zero)>();
    });
  });
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace ebb
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace ebb {

HWY_EXPORT(attend);

void HostKernels::attention_forward(Stream& stream, Tensor out, Tensor log_sum_exp, Tensor qkv,
                                    const AttentionShape& shape) {
  const AttentionCall call = describe_attention(qkv, out, log_sum_exp, shape);
  stream.call({.flops = 2.0 * call.product_flops(),
               .bytes = total_bytes(out, log_sum_exp, qkv, shape.document_starts),
               .workspace_bytes = forward_workspace_bytes(call, team_.num_threads()),
               .name = "attention_forward"},
              [this, call] {
                check_documents(call);
                const auto run = HWY_DYNAMIC_DISPATCH(attend);
                run(call, team_, workspace_);
              });
}

}  // namespace ebb
#endif
