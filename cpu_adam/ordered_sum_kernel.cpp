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

template <class D>
HWY_INLINE hn::Vec<D> load_sums(D d, const float* from) {
  return hn::LoadU(d, from);
}
template <class D>
HWY_INLINE hn::Vec<D> load_sums(D d, const BF16* from) {
  const hn::RebindToUnsigned<D> d32;
  const hn::Rebind<uint16_t, D> d16;
  return hn::BitCast(d, hn::ShiftLeft<16>(hn::PromoteTo(d32, hn::LoadU(d16, &from->bits))));
}

/// to = from + arrays[0] + ... + arrays[kNum - 1], added from left to right; the elements of the
/// arrays begin at `first`. `to` may be `from`.
template <size_t kNum, class From, class Sum>
void add_arrays(float* to, const From* from, const Sum* const* arrays, int64_t first, int64_t n) {
  const Sum* at[kNum];
  for (size_t k = 0; k < kNum; ++k) at[k] = arrays[k] + first;
  for_each_vector(n, [&](auto d, int64_t i) {
    auto sum = load_sums(d, from + i);
    for (size_t k = 0; k < kNum; ++k) sum = hn::Add(sum, load_sums(d, at[k] + i));
    hn::StoreU(sum, d, to + i);
  });
}

/// block = from + the first `num` of kAtOnce arrays.
template <class From, class Sum>
void add_some(float* block, const From* from, const Sum* const* arrays, size_t num, int64_t first,
              int64_t n) {
  switch (num) {
    case 1:
      return add_arrays<1>(block, from, arrays, first, n);
    case 2:
      return add_arrays<2>(block, from, arrays, first, n);
    case 3:
      return add_arrays<3>(block, from, arrays, first, n);
    default:
      return add_arrays<kAtOnce>(block, from, arrays, first, n);
  }
}

/// n sums as fp32: where they are, or in `block`.
const float* widened(float*, const float* sums, int64_t) { return sums; }
const float* widened(float* block, const BF16* sums, int64_t n) {
  for_each_vector(n, [&](auto d, int64_t i) { hn::StoreU(load_sums(d, sums + i), d, block + i); });
  return block;
}

/// block = from + n elements of each array, from `first` on. REQUIRES: there is an array.
template <class From, class Sum>
void add_all(float* block, const From* from, GroupSums groups, int64_t first, int64_t n) {
  const Sum* arrays[kAtOnce];
  for (size_t k = 0; k < groups.size(); k += kAtOnce) {
    const size_t num = std::min(kAtOnce, groups.size() - k);
    for (size_t i = 0; i < num; ++i) arrays[i] = reinterpret_cast<const Sum*>(groups[k + i]);
    if (k == 0) {
      add_some(block, from, arrays, num, first, n);
    } else {
      add_some(block, block, arrays, num, first, n);
    }
  }
}

/// The sum of n elements of each array, from `first` on: in `block`, or in the only array.
template <class Sum>
const float* sum_groups(GroupSums groups, int64_t first, int64_t n, float* block) {
  const Sum* const first_group = reinterpret_cast<const Sum*>(groups[0]) + first;
  if (groups.size() == 1) return widened(block, first_group, n);
  add_all<Sum, Sum>(block, first_group, groups.subspan(1), first, n);
  return block;
}

/// The sum over uses of n <= kBlock elements, from `first` on. Uses `block`, if there is something
/// to add or to widen.
template <class Sum>
const float* sum_uses(std::span<const GroupSums> uses, int64_t first, int64_t n, float* block) {
  alignas(64) float block_of_use[kBlock];
  const float* sum = sum_groups<Sum>(uses[0], first, n, block);
  for (const GroupSums& groups : uses.subspan(1)) {
    const float* const of_use = sum_groups<Sum>(groups, first, n, block_of_use);
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

/// `bytes` that are not read soon, so they are written past the caches.
template <class T>
void write_past_caches(T* to, const T* from, int64_t bytes) {
  if (is_whole_lines(to, bytes)) {
    stream_lines(to, from, bytes);
  } else {
    std::memcpy(to, from, static_cast<size_t>(bytes));
  }
}

template <class Sum>
void add_in_blocks(const float* before, GroupSums groups, int64_t first, int64_t count,
                   float* sum) {
  alignas(64) float block[kBlock];
  for (int64_t at = first; at < first + count; at += kBlock) {
    const int64_t n = std::min(kBlock, first + count - at);
    const float* from = block;
    if (before == nullptr) {
      from = sum_groups<Sum>(groups, at, n, block);
    } else {
      add_all<float, Sum>(block, before + at, groups, at, n);
    }
    write_past_caches(sum + at, from, n * static_cast<int64_t>(sizeof(float)));
  }
  hwy::FlushStream();
}

void add_groups_of(const float* before, GroupSums groups, DType sum_type, int64_t first,
                   int64_t count, float* sum) {
  if (sum_type == DType::BF16) return add_in_blocks<BF16>(before, groups, first, count, sum);
  add_in_blocks<float>(before, groups, first, count, sum);
}

template <class Sum, class T>
double round_in_blocks(std::span<const GroupSums> uses, int64_t first, int64_t count, T* gradient,
                       bool with_squares) {
  alignas(64) float block[kBlock];
  alignas(64) T rounded_block[kBlock];
  PartialSums squares;
  for (int64_t at = first; at < first + count; at += kBlock) {
    const int64_t n = std::min(kBlock, first + count - at);
    const auto bytes = n * static_cast<int64_t>(sizeof(T));
    const T* const rounded = round_block(rounded_block, sum_uses<Sum>(uses, at, n, block), n);
    if (with_squares) squares.add(rounded, n);
    write_past_caches(gradient + at, rounded, bytes);
  }
  hwy::FlushStream();
  return with_squares ? squares.total() : 0;
}

double round_sums_as(std::span<const GroupSums> uses, DType sum_type, int64_t first, int64_t count,
                     std::byte* gradient, DType type, bool with_squares) {
  return with_float_type(type, [&](auto zero) {
    auto* const to = reinterpret_cast<decltype(zero)*>(gradient);
    return sum_type == DType::BF16 ? round_in_blocks<BF16>(uses, first, count, to, with_squares)
                                   : round_in_blocks<float>(uses, first, count, to, with_squares);
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
HWY_EXPORT(add_groups_of);
HWY_EXPORT(sum_of_squares_as);

double round_sums(std::span<const GroupSums> uses, DType sum_type, int64_t first, int64_t count,
                  std::byte* gradient, DType type, bool with_squares) {
  return HWY_DYNAMIC_DISPATCH(round_sums_as)(uses, sum_type, first, count, gradient, type,
                                             with_squares);
}

void add_groups(const float* before, GroupSums groups, DType sum_type, int64_t first, int64_t count,
                float* sum) {
  HWY_DYNAMIC_DISPATCH(add_groups_of)(before, groups, sum_type, first, count, sum);
}

double sum_of_squares(const std::byte* gradient, DType type, int64_t first, int64_t count) {
  return HWY_DYNAMIC_DISPATCH(sum_of_squares_as)(gradient, type, first, count);
}

}  // namespace ebb
#endif
