#include "cpu_adam/ordered_sum_kernel.h"

#include <algorithm>
#include <cstring>
#include <type_traits>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu_adam/ordered_sum_kernel.cpp"
// The order matters: foreach_target.h compiles what follows it once for each instruction set.
// clang-format off
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "device/bf16-inl.h"
#include "device/f16-inl.h"
#include "device/partial_norm-inl.h"
#include "device/stream_lines-inl.h"
// clang-format on

HWY_BEFORE_NAMESPACE();
namespace ebb {
namespace HWY_NAMESPACE {
namespace {

/// Elements that are summed at a time. The sums of a block stay in the first-level cache.
constexpr int64_t kBlock = 2048;
/// Arrays that are added in one pass over a block.
constexpr size_t kAtOnce = 4;

/// body(tag, i) for the vectors of [0, n), then for the rest one element at a time.
template <class Body>
HWY_INLINE void for_each_vector(int64_t n, const Body& body) {
  const hn::ScalableTag<float> d;
  const hn::CappedTag<float, 1> d1;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  int64_t i = 0;
  for (; i + lanes <= n; i += lanes) body(d, i);
  for (; i < n; ++i) body(d1, i);
}

/// to = from + arrays[0] + ... + arrays[kNum - 1], added from left to right; the elements of the
/// arrays begin at `first`. `to` may be `from`.
template <size_t kNum>
void add_arrays(float* to, const float* from, const float* const* arrays, int64_t first,
                int64_t n) {
  const float* at[kNum];
  for (size_t k = 0; k < kNum; ++k) at[k] = arrays[k] + first;
  for_each_vector(n, [&](auto d, int64_t i) {
    auto sum = hn::LoadU(d, from + i);
    for (size_t k = 0; k < kNum; ++k) sum = hn::Add(sum, hn::LoadU(d, at[k] + i));
    hn::StoreU(sum, d, to + i);
  });
}

/// The sum of n elements of each array, from `first` on: in `block`, or in the only array.
const float* sum_groups(GroupSums groups, int64_t first, int64_t n, float* block) {
  const float* sum = groups[0] + first;
  for (size_t k = 1; k < groups.size(); k += kAtOnce) {
    const auto add = [&](auto num) {
      add_arrays<decltype(num)::value>(block, sum, &groups[k], first, n);
    };
    switch (std::min(kAtOnce, groups.size() - k)) {
      case 1:
        add(std::integral_constant<size_t, 1>());
        break;
      case 2:
        add(std::integral_constant<size_t, 2>());
        break;
      case 3:
        add(std::integral_constant<size_t, 3>());
        break;
      default:
        add(std::integral_constant<size_t, kAtOnce>());
    }
    sum = block;
  }
  return sum;
}

/// The sum over uses of n <= kBlock elements, from `first` on. Uses `block`, if there is something
/// to add.
const float* sum_uses(std::span<const GroupSums> uses, int64_t first, int64_t n, float* block) {
  alignas(64) float block_of_use[kBlock];
  const float* sum = sum_groups(uses[0], first, n, block);
  for (const GroupSums& groups : uses.subspan(1)) {
    const float* const of_use = sum_groups(groups, first, n, block_of_use);
    add_arrays<1>(block, sum, &of_use, 0, n);
    sum = block;
  }
  return sum;
}

/// Rounds n <= kBlock elements. Returns `rounded`, or the sums themselves if their type is T.
const float* round_block(float*, const float* sums, int64_t) { return sums; }
const BF16* round_block(BF16* rounded, const float* sums, int64_t n) {
  for_each_vector(n,
                  [&](auto d, int64_t i) { store_bf16(d, hn::LoadU(d, sums + i), rounded + i); });
  return rounded;
}
const F16* round_block(F16* rounded, const float* sums, int64_t n) {
  for_each_vector(n, [&](auto d, int64_t i) { store_f16(d, hn::LoadU(d, sums + i), rounded + i); });
  return rounded;
}

/// The gradient is not read soon, so it is written past the caches.
template <class T>
double round_in_blocks(std::span<const GroupSums> uses, int64_t first, int64_t count, T* gradient,
                       bool with_squares) {
  alignas(64) float block[kBlock];
  alignas(64) T rounded_block[kBlock];
  PartialSums squares;
  for (int64_t at = first; at < first + count; at += kBlock) {
    const int64_t n = std::min(kBlock, first + count - at);
    const auto bytes = n * static_cast<int64_t>(sizeof(T));
    const T* const rounded = round_block(rounded_block, sum_uses(uses, at, n, block), n);
    if (with_squares) squares.add(rounded, n);
    if (is_whole_lines(gradient + at, bytes)) {
      stream_lines(gradient + at, rounded, bytes);
    } else {
      std::memcpy(gradient + at, rounded, static_cast<size_t>(bytes));
    }
  }
  hwy::FlushStream();
  return with_squares ? squares.total() : 0;
}

double round_sums_as(std::span<const GroupSums> uses, int64_t first, int64_t count,
                     std::byte* gradient, DType type, bool with_squares) {
  return with_float_type(type, [&](auto zero) {
    return round_in_blocks(uses, first, count, reinterpret_cast<decltype(zero)*>(gradient),
                           with_squares);
  });
}

double sum_of_squares_as(const std::byte* gradient, DType type, int64_t first, int64_t count) {
  return with_float_type(type, [&](auto zero) {
    PartialSums squares;
    squares.add(reinterpret_cast<const decltype(zero)*>(gradient) + first, count);
    return squares.total();
  });
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace ebb
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace ebb {

HWY_EXPORT(round_sums_as);
HWY_EXPORT(sum_of_squares_as);

double round_sums(std::span<const GroupSums> uses, int64_t first, int64_t count,
                  std::byte* gradient, DType type, bool with_squares) {
  return HWY_DYNAMIC_DISPATCH(round_sums_as)(uses, first, count, gradient, type, with_squares);
}

double sum_of_squares(const std::byte* gradient, DType type, int64_t first, int64_t count) {
  return HWY_DYNAMIC_DISPATCH(sum_of_squares_as)(gradient, type, first, count);
}

}  // namespace ebb
#endif
