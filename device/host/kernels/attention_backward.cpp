#include "device/host/kernels/attention.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "device/host/kernels/attention_backward.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "device/host/kernels/attention-inl.h"

#ifndef EBB_HOST_KERNELS_ATTENTION_BACKWARD_ARGUMENTS_
#define EBB_HOST_KERNELS_ATTENTION_BACKWARD_ARGUMENTS_
namespace ebb {
namespace {

int64_t backward_slot_floats(const AttentionCall& call) {
  const int64_t padded_tokens = round_up(call.num_tokens, kTile);
  return (padded_tokens + 7 * kTile) * call.padded_head() + padded_tokens + 2 * kTile * kTile;
}

size_t backward_workspace_bytes(const AttentionCall& call, int num_threads) {
  return Scratch::bytes_of<float>(backward_slot_floats(call) * num_threads) +
         Scratch::bytes_of<int32_t>(2 * call.num_tokens * num_threads);
}

}  // namespace
}  // namespace ebb
#endif

HWY_BEFORE_NAMESPACE();
namespace ebb {
namespace HWY_NAMESPACE {
namespace {

/// One head of one row of the batch, and its scratch. Keys ascend outside, queries inside.
struct BackwardTask {
  const AttentionCall& call;
  int64_t b, head, width;
  Visible visible;
  float *dq, *k, *kt, *vt, *dk, *dv, *q, *dout;
  float* inner;  // (T): sum over the head of dout * out
  float *weights, *dscores;
  float scale;

  BackwardTask(const AttentionCall& c, int64_t task, float* floats, int32_t* ints)
      : call(c),
        b(task / c.num_heads),
        head(task % c.num_heads),
        width(c.padded_head()),
        visible{ints, ints + c.num_tokens},
        scale(c.scale()) {
    const int64_t padded_tokens = round_up(c.num_tokens, kTile);
    dq = floats;
    k = dq + padded_tokens * width;
    kt = k + kTile * width;
    vt = kt + kTile * width;
    dk = vt + kTile * width;
    dv = dk + kTile * width;
    q = dv + kTile * width;
    dout = q + kTile * width;
    inner = dout + kTile * width;
    weights = inner + padded_tokens;
    dscores = weights + kTile * kTile;
  }

  HeadRows part_rows(int64_t part) const {
    return {call, b, 3 * call.channels, part * call.channels + head * call.head_size};
  }
  HeadRows out_rows() const { return {call, b, call.channels, head * call.head_size}; }

  template <class T>
  void run() const {
    visible.find(call, b);
    std::fill_n(dq, round_up(call.num_tokens, kTile) * width, 0.0f);
    for (int64_t i = 0; i < call.num_tokens; i += kTile) find_inner<T>(i);
    for (int64_t key = 0; key < call.num_tokens; key += kTile) run_keys<T>(key);
    part_rows(0).store_tile<T>(call.dqkv, 0, call.num_tokens, dq);
  }

  template <class T>
  void find_inner(int64_t first) const {
    const int64_t count = std::min(kTile, call.num_tokens - first);
    out_rows().load_tile<T>(call.dout, first, count, dout);
    out_rows().load_tile<T>(call.out, first, count, q);
    for (int64_t r = 0; r < count; ++r) {
      Wide sum = broadcast(0.0f);
      for (int64_t i = r * width; i < (r + 1) * width; i += kWide) {
        sum = fma(load(dout + i), load(q + i), sum);
      }
      inner[first + r] = reduce_add(sum);
    }
  }

  template <class T>
  void run_keys(int64_t key) const {
    const int64_t count = std::min(kTile, call.num_tokens - key);
    part_rows(2).load_tile<T>(call.qkv, key, count, k);
    transpose_tile(k, width, vt);
    part_rows(1).load_tile<T>(call.qkv, key, count, k);
    transpose_tile(k, width, kt);
    std::fill_n(dk, kTile * width, 0.0f);
    std::fill_n(dv, kTile * width, 0.0f);
    for (int64_t query = 0; query < call.num_tokens; query += kTile) {
      const int64_t last = std::min(query + kTile, call.num_tokens) - 1;
      if (visible.first[query] < key + kTile && visible.end[last] > key) run_tile<T>(query, key);
    }
    part_rows(1).store_tile<T>(call.dqkv, key, count, dk);
    part_rows(2).store_tile<T>(call.dqkv, key, count, dv);
  }

  template <class T>
  void run_tile(int64_t query, int64_t key) const {
    const int64_t queries = std::min(kTile, call.num_tokens - query);
    const int64_t keys = std::min(kTile, call.num_tokens - key);
    part_rows(0).load_tile<T>(call.qkv, query, queries, q);
    out_rows().load_tile<T>(call.dout, query, queries, dout);
    multiply(queries, kTile, call.head_size, q, kt, weights, {width, 1, kTile, kTile}, true);
    multiply(queries, kTile, call.head_size, dout, vt, dscores, {width, 1, kTile, kTile}, true);
    for (int64_t r = 0; r < queries; ++r) {
      differentiate_row(query + r, key, weights + r * kTile, dscores + r * kTile);
    }
    multiply(keys, width, queries, weights, dout, dv, {1, kTile, width, width}, false);
    multiply(keys, width, queries, dscores, q, dk, {1, kTile, width, width}, false);
    multiply(queries, width, keys, dscores, k, dq + query * width, {kTile, 1, width, width}, false);
  }

  /// row: scores to weights; drow: gradient of the weights to gradient of the unscaled scores.
  void differentiate_row(int64_t query, int64_t key, float* row, float* drow) const {
    const Span span(visible, query, key);
    if (span.empty()) {
      std::fill_n(row, kTile, 0.0f);
      std::fill_n(drow, kTile, 0.0f);
      return;
    }
    span.fill_outside(row, -std::numeric_limits<float>::infinity());
    const float* log_sum_exp = call.log_sum_exp + (b * call.num_heads + head) * call.num_tokens;
    const Wide minus_log_sum = broadcast(-log_sum_exp[query]), factor = broadcast(scale);
    const Wide mean = broadcast(inner[query]);
    for (int64_t j = 0; j < kTile; j += kWide) {
      const Wide weight = exp(fma(load(row + j), factor, minus_log_sum));
      store(row + j, weight);
      store(drow + j, weight * (load(drow + j) - mean) * factor);
    }
  }
};

void attend_backward(const AttentionCall& call, ThreadTeam& team, const Workspace& workspace) {
  Scratch scratch(workspace);
  const int64_t slot_floats = backward_slot_floats(call);
  float* floats = scratch.take<float>(slot_floats * team.num_threads());
  int32_t* ints = scratch.take<int32_t>(2 * call.num_tokens * team.num_threads());
  with_float_type(call.dtype, [&](auto zero) {
    for_each_slot(team, call.batch * call.num_heads, [&](int64_t task, int64_t slot) {
      const BackwardTask backward(call, task, floats + slot * slot_floats,
                                  ints + slot * 2 * call.num_tokens);
      backward.run<decltype(zero)>();
    });
  });
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace ebb
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace ebb {

HWY_EXPORT(attend_backward);

void HostKernels::attention_backward(Stream& stream, Tensor dqkv, Tensor dout, Tensor qkv,
                                     Tensor out, Tensor log_sum_exp, const AttentionShape& shape) {
  AttentionCall call = describe_attention(qkv, out, log_sum_exp, shape);
  EBB_CHECK(dqkv.dtype == qkv.dtype && dqkv.shape == qkv.shape,
            "attention_backward: dqkv must look like qkv");
  EBB_CHECK(dout.dtype == out.dtype && dout.shape == out.shape,
            "attention_backward: dout must look like out");
  call.dqkv = dqkv.data;
  call.dout = dout.data;
  stream.call({.flops = 5.0 * call.product_flops(),
               .bytes = total_bytes(dqkv, dout, qkv, out, log_sum_exp, shape.document_starts),
               .workspace_bytes = backward_workspace_bytes(call, team_.num_threads()),
               .name = "attention_backward"},
              [this, call] {
                check_documents(call);
                const auto run = HWY_DYNAMIC_DISPATCH(attend_backward);
                run(call, team_, workspace_);
              });
}

}  // namespace ebb
#endif
