#include "device/host/kernels/attention.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "device/host/kernels/attention_backward.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "device/host/kernels/attention-inl.h"
#include "system/thread_team.h"

#ifndef EBB_HOST_KERNELS_ATTENTION_BACKWARD_ARGUMENTS_
#define EBB_HOST_KERNELS_ATTENTION_BACKWARD_ARGUMENTS_
namespace ebb {
namespace {

int64_t backward_scratch_floats(const AttentionOperands& operands) {
  return (2 * padded_tokens(operands) + 7 * kTile) * ebb::padded_head(operands) + 2 * kTile +
         2 * kTile * kTile;
}

size_t backward_workspace_bytes(const AttentionOperands& operands, int num_threads) {
  return Scratch::bytes_of<float>(backward_scratch_floats(operands) * num_threads) +
         Scratch::bytes_of<int32_t>(2 * padded_tokens(operands) * num_threads);
}

}  // namespace
}  // namespace ebb
#endif

HWY_BEFORE_NAMESPACE();
namespace ebb {
namespace HWY_NAMESPACE {
namespace {

/// One query head of one row of the batch. A task computes all query heads that share one head of
/// keys and values.
struct Head {
  int64_t b, head;

  static Head first_of(const AttentionOperands& operands, int64_t task) {
    return {task / operands.num_kv_heads, task % operands.num_kv_heads * operands.group_size()};
  }
  HeadRows part_rows(const AttentionOperands& operands, int64_t part) const {
    return {operands, b, operands.qkv_columns(), operands.column_of(part, head)};
  }
  HeadRows out_rows(const AttentionOperands& operands) const {
    return {operands, b, operands.channels(), head * operands.head_size};
  }
};

/// One task and its scratch memory. The loops over heads, queries and keys ascend, so all sums are
/// in ascending order.
struct BackwardTask : Head {
  const AttentionOperands& operands;
  Head next;  // the probable next task of the same thread
  int64_t width;
  Visible visible;
  float *dk, *dv;                        // (padded tokens, width)
  float *q, *qt, *dout, *doutt, *k, *v;  // one tile each; q is scaled; t: transposed
  float* dq;                             // a tile
  float *log_sum, *inner;                // (kTile) per query; inner: sum of dout * out
  float *weights, *dscores;              // (kTile keys, kTile queries)

  BackwardTask(const AttentionOperands& c, int64_t task, int64_t next_task, float* floats,
               int32_t* ints)
      : Head(Head::first_of(c, task)),
        operands(c),
        next(Head::first_of(c, next_task)),
        width(ebb::padded_head(c)),
        visible{ints, ints + padded_tokens(c)} {
    const int64_t tile = kTile * width;
    dk = floats;
    dv = dk + padded_tokens(c) * width;
    q = dv + padded_tokens(c) * width;
    qt = q + tile;
    dout = qt + tile;
    doutt = dout + tile;
    k = doutt + tile;
    v = k + tile;
    dq = v + tile;
    log_sum = dq + tile;
    inner = log_sum + kTile;
    weights = inner + kTile;
    dscores = weights + kTile * kTile;
  }

  int64_t tokens_from(int64_t first) const { return std::min(kTile, operands.num_tokens - first); }

  template <class T>
  void run() {
    visible.find(operands, b);
    std::fill_n(dk, 2 * padded_tokens(operands) * width, 0.0f);
    const Head next_task = next;
    for (const int64_t last = head + operands.group_size() - 1;; ++head) {
      next = head < last ? Head{b, head + 1} : next_task;
      for (int64_t query = 0; query < operands.num_tokens; query += kTile) run_queries<T>(query);
      if (head == last) break;
    }
    const auto one = [](int64_t) { return 1.0f; };
    for (int64_t key = 0; key < operands.num_tokens; key += kTile) {
      part_rows(operands, 1)
          .store_tile<T>(operands.dqkv, key, tokens_from(key), dk + key * width, one);
      part_rows(operands, 2)
          .store_tile<T>(operands.dqkv, key, tokens_from(key), dv + key * width, one);
    }
  }

  template <class T>
  void run_queries(int64_t query) const {
    const int64_t count = tokens_from(query);
    out_rows(operands).load_tile<T>(operands.dout, query, count, 1.0f, dout);
    out_rows(operands).load_tile<T>(operands.out, query, count, 1.0f, q);
    find_statistics(query, count);
    part_rows(operands, 0).load_tile<T>(operands.qkv, query, count, operands.scale, q);
    transpose_tile(q, width, qt);
    transpose_tile(dout, width, doutt);
    std::fill_n(dq, kTile * width, 0.0f);
    const int64_t end = visible.end[query + count - 1];
    for (int64_t key = visible.first[query] / kTile * kTile; key < end; key += kTile) {
      const View view(visible, query, key);
      part_rows(operands, 1).load_tile<T>(operands.qkv, key, tokens_from(key), 1.0f, k);
      part_rows(operands, 2).load_tile<T>(operands.qkv, key, tokens_from(key), 1.0f, v);
      run_tile<T>(view, query);
    }
    const float scale = operands.scale;
    part_rows(operands, 0).store_tile<T>(operands.dqkv, query, count, dq, [&](int64_t) {
      return scale;
    });
  }

  /// REQUIRES: q contains the rows of `out` of the tile. Padding sees no keys, so its statistics
  /// may be any finite numbers.
  void find_statistics(int64_t query, int64_t count) const {
    for (int64_t r = 0; r < kTile; ++r) {
      Wide sum = broadcast(0.0f);
      for (int64_t i = r * width; i < (r + 1) * width; i += kWide) {
        sum = fma(load(dout + i), load(q + i), sum);
      }
      inner[r] = reduce_add(sum);
    }
    std::fill_n(log_sum, kTile, 0.0f);
    std::copy_n(
        operands.log_sum_exp + (b * operands.num_heads + head) * operands.num_tokens + query, count,
        log_sum);
  }

  template <class T>
  void run_tile(const View& view, int64_t query) const {
    const QueryRanges queries(view);
    for (int64_t s = 0; s < kStrips; ++s) {
      prefetch_strip<T>(query, view.key + kTile, s * kStep);
      find_scores(queries.of_strip[s], s * kStep);
    }
    for (int64_t group = 0; group < kGroups; ++group) differentiate_group(view, query, group);
    for (int64_t s = 0; s < kStrips; ++s) {
      add_key_gradients(queries.of_strip[s], s * kStep, view.key);
    }
    for (int64_t s = 0; s < kStrips; ++s) {
      add_query_gradients(view.keys_of(s * kStep, kStep), s * kStep);
    }
  }

  /// Prefetches the inputs of the next tile of keys, of queries, or of the next task, one strip at
  /// a time during the work on this tile. Inline, because GCC removes calls of a function that only
  /// prefetches.
  template <class T>
  HWY_INLINE void prefetch_strip(int64_t query, int64_t next_key, int64_t row) const {
    const bool more_keys = next_key < visible.end[std::min(query + kTile, operands.num_tokens) - 1];
    const bool more_queries = query + kTile < operands.num_tokens;
    const Head& then = more_keys || more_queries ? *this : next;
    const int64_t key = row + (more_keys ? next_key : 0), rows = rows_of_strip(key);
    then.part_rows(operands, 1).prefetch<T>(operands.qkv, key, rows);
    then.part_rows(operands, 2).prefetch<T>(operands.qkv, key, rows);
    if (more_keys) return;
    part_rows(operands, 0).prefetch<T>(operands.dqkv, query + row, rows_of_strip(query + row));
    const int64_t next_query = row + (more_queries ? query + kTile : 0);
    const int64_t count = rows_of_strip(next_query);
    then.part_rows(operands, 0).prefetch<T>(operands.qkv, next_query, count);
    then.out_rows(operands).prefetch<T>(operands.out, next_query, count);
    then.out_rows(operands).prefetch<T>(operands.dout, next_query, count);
  }
  int64_t rows_of_strip(int64_t first) const {
    return std::min<int64_t>(kStep, operands.num_tokens - first);
  }

  /// Computes the scores of a strip of keys and the gradients of their weights.
  void find_scores(const Range& queries, int64_t key) const {
    const TileStrides strides{width, 1, kTile, kTile};
    multiply_strip(queries, operands.head_size, k + key * width, qt, weights + key * kTile, strides,
                   true);
    multiply_strip(queries, operands.head_size, v + key * width, doutt, dscores + key * kTile,
                   strides, true);
  }

  /// Converts scores into weights, and gradients of weights into gradients of scores.
  void differentiate_group(const View& view, int64_t query, int64_t group) const {
    const Range keys = view.keys_of_group(group);
    hide(view, group, weights);
    if (operands.dropout) return differentiate_kept(view, query, group);
    const Wide log_sums = load(log_sum + group * kWide), means = load(inner + group * kWide);
    for (int64_t j = keys.begin; j < keys.end; ++j) {
      const int64_t at = j * kTile + group * kWide;
      const Wide weight = exp(load(weights + at) - log_sums);
      store(weights + at, weight);
      store(dscores + at, weight * (load(dscores + at) - means));
    }
  }

  /// The same with dropout. The gradients of the values need only the kept weights; the gradients
  /// of the scores need all weights.
  void differentiate_kept(const View& view, int64_t query, int64_t group) const {
    const Range keys = view.keys_of_group(group);
    const Wide log_sums = load(log_sum + group * kWide), means = load(inner + group * kWide);
    alignas(64) float factors[kStep][kWide];
    for (int64_t j = keys.begin; j < keys.end; j += kStep) {
      weight_factors(operands, b, head, query + group * kWide, view.key + j, operands.kept_factor,
                     factors);
      for (int64_t r = 0; r < kStep; ++r) {
        const int64_t at = (j + r) * kTile + group * kWide;
        const Wide weight = exp(load(weights + at) - log_sums), factor = load(factors[r]);
        store(weights + at, weight * factor);
        store(dscores + at, weight * (load(dscores + at) * factor - means));
      }
    }
  }

  void add_key_gradients(const Range& queries, int64_t key, int64_t first_key) const {
    const int64_t at = key * kTile + queries.begin, count = queries.end - queries.begin;
    const int64_t row = (first_key + key) * width, from = queries.begin * width;
    const TileStrides strides{kTile, 1, width, width};
    multiply_strip({0, width}, count, weights + at, dout + from, dv + row, strides, false);
    multiply_strip({0, width}, count, dscores + at, q + from, dk + row, strides, false);
  }

  void add_query_gradients(const Range& keys, int64_t query) const {
    multiply_strip({0, width}, keys.end - keys.begin, dscores + keys.begin * kTile + query,
                   k + keys.begin * width, dq + query * width, {1, kTile, width, width}, false);
  }
};

void attend_backward(const AttentionOperands& operands, ThreadTeam& team,
                     const Workspace& workspace) {
  Scratch scratch(workspace);
  const int64_t scratch_floats = backward_scratch_floats(operands);
  float* floats = scratch.take<float>(scratch_floats * team.num_threads());
  int32_t* ints = scratch.take<int32_t>(2 * padded_tokens(operands) * team.num_threads());
  with_float_type(operands.dtype, [&](auto zero) {
    const int64_t num_tasks = operands.batch * operands.num_kv_heads;
    for_each_scratch(team, num_tasks, [&](int64_t task, int64_t scratch) {
      const int64_t next = std::min(task + team.num_threads(), num_tasks - 1);
      BackwardTask backward(operands, task, next, floats + scratch * scratch_floats,
                            ints + scratch * 2 * padded_tokens(operands));
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

size_t AttentionBackward::workspace_bytes(const HostLaunch& host) const {
  return backward_workspace_bytes(operands(), host.team.num_threads());
}

void AttentionBackward::run(const HostLaunch& host) const {
  const AttentionOperands f = operands();
  check_documents(f);
  HWY_DYNAMIC_DISPATCH(attend_backward)(f, host.team, host.workspace);
}

}  // namespace ebb
#endif
