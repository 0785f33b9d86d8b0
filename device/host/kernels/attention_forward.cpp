#include "device/host/kernels/attention.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "device/host/kernels/attention_forward.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "device/host/kernels/attention-inl.h"
#include "system/thread_team.h"

#ifndef EBB_HOST_KERNELS_ATTENTION_FORWARD_ARGUMENTS_
#define EBB_HOST_KERNELS_ATTENTION_FORWARD_ARGUMENTS_
namespace ebb {
namespace {

constexpr int64_t kQueriesATask = 256;  // these queries share one pass over keys and values

int64_t forward_scratch_floats(const AttentionOperands& operands) {
  return (2 * kQueriesATask + 2 * kTile) * ebb::padded_head(operands) + 2 * kQueriesATask +
         kTile * kTile + kTile;
}

size_t forward_workspace_bytes(const AttentionOperands& operands, int num_threads) {
  return Scratch::bytes_of<float>(forward_scratch_floats(operands) * num_threads) +
         Scratch::bytes_of<int32_t>(2 * padded_tokens(operands) * num_threads);
}

}  // namespace
}  // namespace ebb
#endif

HWY_BEFORE_NAMESPACE();
namespace ebb {
namespace HWY_NAMESPACE {
namespace {

/// The part of a task: a block of queries of one head.
struct Block {
  int64_t b, head, first_query, num_queries;

  Block(const AttentionOperands& operands, int64_t task) {
    const int64_t blocks = ceil_div(operands.num_tokens, kQueriesATask);
    // The last queries see the most keys, so their tasks come first.
    first_query = (blocks - 1 - task % blocks) * kQueriesATask;
    num_queries = std::min(kQueriesATask, operands.num_tokens - first_query);
    head = task / blocks % operands.num_heads;
    b = task / blocks / operands.num_heads;
  }

  HeadRows rows_of(const AttentionOperands& operands, int64_t part) const {
    return {operands, b, operands.qkv_columns(), operands.column_of(part, head)};
  }
  HeadRows key_rows_of(const AttentionOperands& operands, int64_t part) const {
    return {operands, b, operands.key_columns(), operands.key_column_of(part, head),
            operands.key_rows()};
  }
};

/// One task and its scratch memory.
struct ForwardTask : Block {
  const AttentionOperands& operands;
  Block next;  // the probable next task of the same thread
  int64_t width;
  Visible visible;
  float* qt;  // (tiles, width, kTile): queries times the scale, transposed
  float* o;   // (kQueriesATask, width): sums of weights times values
  float *k, *v;
  float *max_score, *sum;  // (kQueriesATask)
  float* weights;          // (kTile keys, kTile queries)
  float* factors;          // (kTile): rescale earlier sums to a higher maximum

  ForwardTask(const AttentionOperands& c, int64_t task, int64_t next_task, float* floats,
              int32_t* ints)
      : Block(c, task),
        operands(c),
        next(c, next_task),
        width(ebb::padded_head(c)),
        visible{ints, ints + padded_tokens(c)} {
    qt = floats;
    o = qt + kQueriesATask * width;
    k = o + kQueriesATask * width;
    v = k + kTile * width;
    max_score = v + kTile * width;
    sum = max_score + kQueriesATask;
    weights = sum + kQueriesATask;
    factors = weights + kTile * kTile;
  }

  HeadRows out_rows() const {
    return {operands, b, operands.channels(), head * operands.head_size};
  }
  int64_t queries_from(int64_t i) const { return std::min(kTile, num_queries - i); }

  template <class T>
  void run() const {
    visible.find(operands, b);
    for (int64_t i = 0; i < num_queries; i += kTile) {
      rows_of(operands, 0)
          .load_tile<T>(operands.qkv, first_query + i, queries_from(i), operands.scale, k);
      transpose_tile(k, width, qt + i * width);
    }
    const int64_t padded = round_up(num_queries, kTile);
    std::fill_n(o, padded * width, 0.0f);
    std::fill_n(max_score, padded, std::numeric_limits<float>::lowest());
    std::fill_n(sum, padded, 0.0f);
    const int64_t end = visible.end[first_query + num_queries - 1];
    for (int64_t key = visible.first[first_query] / kTile * kTile; key < end; key += kTile) {
      see_keys<T>(key);
    }
    for (int64_t i = 0; i < num_queries; i += kTile) write_tile<T>(i);
  }

  template <class T>
  void see_keys(int64_t key) const {
    const int64_t count = std::min(kTile, operands.num_keys(b) - key);
    key_rows_of(operands, 1).load_tile<T>(operands.keys(), key, count, 1.0f, k);
    key_rows_of(operands, 2).load_tile<T>(operands.keys(), key, count, 1.0f, v);
    for (int64_t i = 0; i < num_queries; i += kTile) {
      const View view(visible, first_query + i, key);
      if (!view.empty()) see_tile<T>(view, i);
    }
  }

  /// Prefetches the inputs of the next tile of keys or of the next task, one strip at a time during
  /// the work on this tile. Inline, because GCC removes calls of a function that only prefetches.
  template <class T>
  HWY_INLINE void prefetch_strip(int64_t first_key, int64_t strip) const {
    const bool more = first_key < visible.end[first_query + num_queries - 1];
    prefetch_keys<T>(more ? *this : next, (more ? first_key : 0) + strip * kStep);
    constexpr int64_t kQueries = kQueriesATask / kStrips;
    if (more) return;
    const int64_t query = first_query + strip * kQueries, left = num_queries - strip * kQueries;
    out_rows().prefetch<T>(operands.out, query, std::min(kQueries, left));
    if (strip * kQueries < next.num_queries) {
      const int64_t count = std::min(kQueries, next.num_queries - strip * kQueries);
      next.rows_of(operands, 0)
          .prefetch<T>(operands.qkv, next.first_query + strip * kQueries, count);
    }
  }

  template <class T>
  HWY_INLINE void prefetch_keys(const Block& block, int64_t key) const {
    const int64_t count = std::min<int64_t>(kStep, operands.num_keys(block.b) - key);
    block.key_rows_of(operands, 1).prefetch<T>(operands.keys(), key, count);
    block.key_rows_of(operands, 2).prefetch<T>(operands.keys(), key, count);
  }

  template <class T>
  void see_tile(const View& view, int64_t i) const {
    const QueryRanges queries(view);
    const bool last = i + kTile >= num_queries;
    for (int64_t s = 0; s < kStrips; ++s) {
      if (last) prefetch_strip<T>(view.key + kTile, s);
      multiply_strip(queries.of_strip[s], operands.head_size, k + s * kStep * width, qt + i * width,
                     weights + s * kStep * kTile, {width, 1, kTile, kTile}, true);
    }
    for (int64_t group = 0; group < kGroups; ++group) weigh_group(view, i, group);
    for (int64_t s = 0; s < kStrips; ++s) {
      const int64_t query = s * kStep;
      add_values(view.keys_of(query, kStep), query, o + (i + query) * width);
    }
  }

  /// Replaces the scores of a group by the weights exp(score - max).
  void weigh_group(const View& view, int64_t i, int64_t group) const {
    const Range keys = view.keys_of_group(group);
    hide(view, group, weights);
    float* row = weights + group * kWide;
    float *tops = max_score + i + group * kWide, *sums = sum + i + group * kWide;
    const Wide before = load(tops);
    Wide top = before;
    for (int64_t j = keys.begin; j < keys.end; ++j) {
      top = max(top, load(row + j * kTile));
    }
    Wide total = broadcast(0.0f);
    for (int64_t j = keys.begin; j < keys.end; ++j) {
      const Wide weight = exp(load(row + j * kTile) - top);
      store(row + j * kTile, weight);
      total = total + weight;
    }
    if (operands.dropout) drop_weights(view, i, group);
    const Wide factor = exp(before - top);
    store(factors + group * kWide, factor);
    store(tops, top);
    store(sums, fma(load(sums), factor, total));
  }

  /// Sets dropped weights to 0 after they were summed. The kept weights are scaled at the end.
  void drop_weights(const View& view, int64_t i, int64_t group) const {
    const Range keys = view.keys_of_group(group);
    alignas(64) float kept[kStep][kWide];
    for (int64_t j = keys.begin; j < keys.end; j += kStep) {
      weight_factors(operands, b, head, first_query + i + group * kWide, view.key + j, 1.0f, kept);
      for (int64_t r = 0; r < kStep; ++r) {
        float* row = weights + (j + r) * kTile + group * kWide;
        store(row, load(row) * load(kept[r]));
      }
    }
  }

  /// Adds weights times values for a strip of queries to the sums of earlier tiles, which it
  /// rescales to the new maximum.
  void add_values(const Range& keys, int64_t query, float* sums) const {
    if (keys.begin == keys.end) return;
    for (int64_t r = 0; r < kStep; ++r) {
      const Wide factor = broadcast(factors[query + r]);
      for (int64_t j = 0; j < width; j += kWide) {
        store(sums + r * width + j, load(sums + r * width + j) * factor);
      }
    }
    multiply_strip({0, width}, keys.end - keys.begin, weights + keys.begin * kTile + query,
                   v + keys.begin * width, sums, {1, kTile, width, width}, false);
  }

  template <class T>
  void write_tile(int64_t i) const {
    const int64_t count = queries_from(i), first = first_query + i;
    const Wide kept = broadcast(operands.kept_factor);
    const int64_t row = (b * operands.num_heads + head) * operands.num_tokens + first;
    for (int64_t j = 0; j < count; j += kWide) {
      const Wide total = load(sum + i + j);
      store(factors + j, kept / total);
      if (operands.log_sum_exp == nullptr) continue;
      store_up_to(operands.log_sum_exp + row + j, load(max_score + i + j) + log(total), count - j);
    }
    out_rows().store_tile<T>(operands.out, first, count, o + i * width,
                             [&](int64_t r) { return factors[r]; });
  }
};

void attend(const AttentionOperands& operands, ThreadTeam& team, const Workspace& workspace) {
  Scratch scratch(workspace);
  const int64_t scratch_floats = forward_scratch_floats(operands);
  float* floats = scratch.take<float>(scratch_floats * team.num_threads());
  int32_t* ints = scratch.take<int32_t>(2 * padded_tokens(operands) * team.num_threads());
  const int64_t num_tasks =
      operands.batch * operands.num_heads * ceil_div(operands.num_tokens, kQueriesATask);
  with_float_type(operands.dtype, [&](auto zero) {
    for_each_scratch(team, num_tasks, [&](int64_t task, int64_t scratch) {
      const int64_t next = std::min(task + team.num_threads(), num_tasks - 1);
      const ForwardTask forward(operands, task, next, floats + scratch * scratch_floats,
                                ints + scratch * 2 * padded_tokens(operands));
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

size_t AttentionForward::workspace_bytes(const HostLaunch& host) const {
  return forward_workspace_bytes(operands(), host.team.num_threads());
}

void AttentionForward::run(const HostLaunch& host) const {
  const AttentionOperands f = operands();
  check_documents(f);
  HWY_DYNAMIC_DISPATCH(attend)(f, host.team, host.workspace);
}

size_t AttentionCached::workspace_bytes(const HostLaunch& host) const {
  return forward_workspace_bytes(operands(), host.team.num_threads());
}

void AttentionCached::run(const HostLaunch& host) const {
  const AttentionOperands f = operands();
  check_positions(f);
  append_to_cache(f);
  HWY_DYNAMIC_DISPATCH(attend)(f, host.team, host.workspace);
}

}  // namespace ebb
#endif
