// Replaces cuDNN in tests that request a library: attention as plain loops in fp64. As in the
// library, weights and gradients of scores are rounded before they are multiplied.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <limits>
#include <set>
#include <vector>

#include "cuda/attention.h"
#include "device/errors.h"
#include "tests/cuda_emulation/code_loading.h"
#include "tests/cuda_emulation/emulated_device.h"
#include "tests/cuda_emulation/os_threads.h"
#include "tests/cuda_emulation/stream_queue.h"

namespace ebb {
namespace {

/// One row of a part; heads are counted from the part's first.
template <class T>
class PlainHeads {
 public:
  PlainHeads(const AttentionOperands& f, const AttentionPart& part, int64_t row)
      : f_(f), row_(row), num_heads_(part.num_kv_heads * f_.group_size()), at_(f, part) {}

  void attend(int64_t head) const {
    const int64_t d = f_.head_size;
    const auto v = values(head / f_.group_size());
    for (int64_t query = 0; query < f_.num_tokens; ++query) {
      const std::vector<double> scores = scores_of(head, query);
      const double highest = *std::ranges::max_element(scores);
      double total = 0;
      std::vector<double> sums(static_cast<size_t>(d), 0.0);
      for (int64_t key = 0; key < f_.num_tokens; ++key) {
        const double weight = std::exp(scores[static_cast<size_t>(key)] - highest);
        total += weight;
        for (int64_t i = 0; i < d; ++i) sums[static_cast<size_t>(i)] += round(weight) * v(key, i);
      }
      for (int64_t i = 0; i < d; ++i) {
        out(f_.out, head, query)[i] = T(static_cast<float>(sums[static_cast<size_t>(i)] / total));
      }
      f_.log_sum_exp[sums_at(head, query)] = static_cast<float>(highest + std::log(total));
    }
  }

  /// The gradients of one head of keys and of the heads of queries that read it.
  void differentiate(int64_t kv_head) const {
    const auto count = static_cast<size_t>(f_.num_tokens * f_.head_size);
    std::vector<double> dk(count, 0.0), dv(count, 0.0);
    for (int64_t head = kv_head * f_.group_size(); head < (kv_head + 1) * f_.group_size(); ++head) {
      const HeadGradients one = differentiate_head(head);
      for (size_t i = 0; i < count; ++i) {
        dk[i] += f_.group_size() == 1 ? one.dk[i] : round(one.dk[i]);
        dv[i] += f_.group_size() == 1 ? one.dv[i] : round(one.dv[i]);
      }
      write(at_.queries, head, one.dq);
    }
    write(at_.keys, kv_head, dk);
    write(at_.values, kv_head, dv);
  }

 private:
  struct HeadGradients {
    std::vector<double> dq, dk, dv;  // (T, D)
  };

  HeadGradients differentiate_head(int64_t head) const {
    const int64_t d = f_.head_size, n = f_.num_tokens;
    const auto count = static_cast<size_t>(n * d);
    HeadGradients g{std::vector<double>(count), std::vector<double>(count),
                    std::vector<double>(count)};
    const auto q = queries(head), k = keys(head / f_.group_size()),
               v = values(head / f_.group_size());
    for (int64_t query = 0; query < n; ++query) {
      const T* y = out(f_.out, head, query);
      const T* dy = out(f_.dout, head, query);
      float& inner = f_.inner[(row_ * num_heads_ + head) * n + query];
      inner = 0;
      for (int64_t i = 0; i < d; ++i) inner += float{y[i]} * float{dy[i]};
      const std::vector<double> scores = scores_of(head, query);
      for (int64_t key = 0; key < n; ++key) {
        const double weight =
            std::exp(scores[static_cast<size_t>(key)] - f_.log_sum_exp[sums_at(head, query)]);
        double dweight = 0;
        for (int64_t i = 0; i < d; ++i) dweight += float{dy[i]} * v(key, i);
        const double dscore = round(f_.scale * weight * (dweight - inner));
        for (int64_t i = 0; i < d; ++i) {
          const auto at_query = static_cast<size_t>(query * d + i);
          const auto at_key = static_cast<size_t>(key * d + i);
          g.dq[at_query] += dscore * k(key, i);
          g.dk[at_key] += dscore * q(query, i);
          g.dv[at_key] += round(weight) * float{dy[i]};
        }
      }
    }
    return g;
  }

  static double round(double x) { return float{T(static_cast<float>(x))}; }
  int64_t sums_at(int64_t head, int64_t token) const {
    return at_.sums + (row_ * f_.num_heads + head) * f_.num_tokens + token;
  }
  int64_t place(int64_t first, int64_t head) const {
    return first + row_ * f_.num_tokens * f_.qkv_columns() + head * f_.head_size;
  }
  auto read(int64_t first, int64_t head) const {
    const T* values = static_cast<const T*>(f_.qkv) + place(first, head);
    return [values, row = f_.qkv_columns()](int64_t token, int64_t i) {
      return double{float{values[token * row + i]}};
    };
  }
  auto queries(int64_t head) const { return read(at_.queries, head); }
  auto keys(int64_t kv_head) const { return read(at_.keys, kv_head); }
  auto values(int64_t kv_head) const { return read(at_.values, kv_head); }
  template <class Void>
  auto* out(Void* data, int64_t head, int64_t token) const {
    using Element = std::conditional_t<std::is_const_v<Void>, const T, T>;
    return static_cast<Element*>(data) + at_.out +
           ((row_ * f_.num_tokens + token) * f_.num_heads + head) * f_.head_size;
  }
  void write(int64_t first, int64_t head, const std::vector<double>& values) const {
    T* to = static_cast<T*>(f_.dqkv) + place(first, head);
    for (size_t i = 0; i < values.size(); ++i) {
      const auto token = static_cast<int64_t>(i) / f_.head_size;
      to[token * f_.qkv_columns() + static_cast<int64_t>(i) % f_.head_size] =
          T(static_cast<float>(values[i]));
    }
  }
  /// The scores of a query; -infinity for keys that it does not see.
  std::vector<double> scores_of(int64_t head, int64_t query) const {
    const auto q = queries(head), k = keys(head / f_.group_size());
    std::vector<double> scores(static_cast<size_t>(f_.num_tokens),
                               -std::numeric_limits<double>::infinity());
    const int64_t last = f_.causal ? query : f_.num_tokens - 1;
    const int64_t first =
        f_.causal && f_.window > 0 ? std::max<int64_t>(0, query - f_.window + 1) : 0;
    for (int64_t key = first; key <= last; ++key) {
      double score = 0;
      for (int64_t i = 0; i < f_.head_size; ++i) score += q(query, i) * k(key, i);
      scores[static_cast<size_t>(key)] = score * f_.scale;
    }
    return scores;
  }

  const AttentionOperands& f_;
  const int64_t row_, num_heads_;
  const AttentionPlaces at_;
};

class PlainAttention final : public AttentionLibrary {
 public:
  bool can_attend(const AttentionOperands&, size_t) override {
    return emulation::settings().attention_has_kernels;
  }
  bool can_differentiate(const AttentionOperands&, const AttentionPart&, size_t) override {
    return emulation::settings().attention_has_kernels;
  }
  void forward(cudaStream_t stream, const AttentionOperands& f,
               std::span<std::byte> workspace) override {
    check(f, workspace);
    load_for(forward_shapes_, f, {.num_rows = f.batch, .num_kv_heads = f.num_kv_heads});
    emulation::enqueue(stream, [f] {
      const AttentionPart all{.num_rows = f.batch, .num_kv_heads = f.num_kv_heads};
      emulation::deal(f.batch * f.num_heads, [&](int64_t i) {
        with_float_type(f.dtype, [&](auto zero) {
          PlainHeads<decltype(zero)>(f, all, i / f.num_heads).attend(i % f.num_heads);
        });
      });
    });
  }
  void backward(cudaStream_t stream, const AttentionOperands& f, const AttentionPart& part,
                std::span<std::byte> workspace) override {
    check(f, workspace);
    check(f, {reinterpret_cast<std::byte*>(f.inner), sizeof(float)});
    load_for(backward_shapes_, f, part);
    emulation::enqueue(stream, [f, part, workspace] {
      std::memset(workspace.data(), 0xFF,
                  workspace.size());  // the workspace must have no other use
      emulation::deal(part.num_rows * part.num_kv_heads, [&](int64_t i) {
        with_float_type(f.dtype, [&](auto zero) {
          PlainHeads<decltype(zero)>(f, part, i / part.num_kv_heads)
              .differentiate(i % part.num_kv_heads);
        });
      });
    });
  }

 private:
  static void check(const AttentionOperands& f, std::span<std::byte> scratch) {
    EBB_CHECK(is_library_attention(f), "cuDNN would refuse this attention");
    EBB_CHECK(emulation::is_device_memory(scratch.data(), scratch.size()),
              "the workspace of attention is not on the device");
  }

  using Shape = std::array<int64_t, 6>;
  static void load_for(std::set<Shape>& loaded, const AttentionOperands& f,
                       const AttentionPart& part) {
    const Shape shape = {part.num_rows, part.num_kv_heads, f.num_tokens,
                         f.num_heads,   f.num_kv_heads,    f.head_size};
    if (loaded.insert(shape).second) emulation::load_code();
  }
  std::set<Shape> forward_shapes_, backward_shapes_;
};

}  // namespace

std::string attention_library_name() { return emulation::settings().attention_library; }

std::unique_ptr<AttentionLibrary> create_attention_library() {
  return std::make_unique<PlainAttention>();
}

}  // namespace ebb
