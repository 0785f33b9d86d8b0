#include "device/normal_numbers.h"

#include <algorithm>
#include <array>
#include <numbers>

#include "device/random.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "device/normal_numbers.cpp"
// The order matters: foreach_target.h compiles what follows it once for each instruction set.
// clang-format off
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "hwy/contrib/math/math-inl.h"
// clang-format on

HWY_BEFORE_NAMESPACE();
namespace ebb {
namespace HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;

void scalar_numbers(uint64_t first, uint64_t counter_hi, uint64_t key, std::span<float> out) {
  for (size_t i = 0; i < out.size(); i += 4) {
    const auto words = philox4x32(first + i / 4, counter_hi, key);
    const auto a = normal_pair(words[0], words[1]);
    const auto b = normal_pair(words[2], words[3]);
    const std::array<float, 4> values = {a.first, a.second, b.first, b.second};
    std::copy_n(values.begin(), std::min<size_t>(4, out.size() - i), out.data() + i);
  }
}

#if HWY_TARGET != HWY_SCALAR

using Real = hn::ScalableTag<double>;
using Bits = hn::RebindToUnsigned<Real>;  // the lower 32 bits of a lane are a word
using Short = hn::Rebind<float, Real>;

struct Words {
  hn::Vec<Bits> x0, x1, x2, x3;
};

/// philox4x32 of a counter in each lane. The upper halves of lanes are not used.
HWY_INLINE Words philox(uint64_t first, uint64_t counter_hi, uint64_t key) {
  const Bits d;
  const hn::Repartition<uint32_t, Bits> d32;
  const auto multiplier0 = hn::Set(d32, 0xD2511F53u), multiplier1 = hn::Set(d32, 0xCD9E8D57u);
  const auto counter = hn::Iota(d, first);
  Words w = {counter, hn::ShiftRight<32>(counter), hn::Set(d, counter_hi),
             hn::Set(d, counter_hi >> 32)};
  auto key0 = static_cast<uint32_t>(key), key1 = static_cast<uint32_t>(key >> 32);
  for (int round = 0; round < 10; ++round, key0 += 0x9E3779B9, key1 += 0xBB67AE85) {
    const auto product0 = hn::MulEven(multiplier0, hn::BitCast(d32, w.x0));
    const auto product1 = hn::MulEven(multiplier1, hn::BitCast(d32, w.x2));
    w = {hn::Xor(hn::Xor(hn::ShiftRight<32>(product1), w.x1), hn::Set(d, uint64_t{key0})), product1,
         hn::Xor(hn::Xor(hn::ShiftRight<32>(product0), w.x3), hn::Set(d, uint64_t{key1})),
         product0};
  }
  return w;
}

/// uniform() of the words. The bits of 2^52 + word are those of 2^52 with the word in the lowest
/// bits.
HWY_INLINE hn::Vec<Real> uniforms(hn::Vec<Bits> words) {
  const Real d;
  const Bits bits;
  const auto low = hn::And(words, hn::Set(bits, uint64_t{0xffffffff}));
  const auto word = hn::Sub(hn::BitCast(d, hn::Or(low, hn::Set(bits, uint64_t{0x433} << 52))),
                            hn::Set(d, 0x1p52));
  return hn::Mul(hn::Add(word, hn::Set(d, 0.5)), hn::Set(d, 0x1p-32));
}

/// Rounds to fp32. Clears `sure` if a number that differs from `value` by up to 2^-40 of it could
/// round differently. The C library's numbers differ by less than 2^-49, so 2^-40 leaves a margin.
/// (Measured once with glibc over all 2^32 words: radius, cosine and sine differ by about 2^-51
/// each.)
HWY_INLINE hn::Vec<Short> rounded(hn::Vec<Real> value, bool& sure) {
  const Real d;
  const Short to;
  const auto less = hn::DemoteTo(to, hn::Mul(value, hn::Set(d, 1 - 0x1p-40)));
  const auto more = hn::DemoteTo(to, hn::Mul(value, hn::Set(d, 1 + 0x1p-40)));
  sure = sure && hn::AllTrue(to, hn::Eq(less, more));
  return less;
}

struct Pairs {
  hn::Vec<Short> first, second;
};

/// normal_pair() of words.
HWY_INLINE Pairs pairs(hn::Vec<Bits> word0, hn::Vec<Bits> word1, bool& sure) {
  const Real d;
  const auto radius = hn::Sqrt(hn::Mul(hn::Set(d, -2.0), hn::Log(d, uniforms(word0))));
  const auto angle = hn::Mul(hn::Set(d, 2 * std::numbers::pi), uniforms(word1));
  return {rounded(hn::Mul(radius, hn::Cos(d, angle)), sure),
          rounded(hn::Mul(radius, hn::Sin(d, angle)), sure)};
}

/// The numbers of a counter per lane. Where rounding is not sure, the C library computes them.
HWY_INLINE void vector_numbers(uint64_t first, uint64_t counter_hi, uint64_t key, float* out) {
  const Short d;
  bool sure = true;
  const Words w = philox(first, counter_hi, key);
  const Pairs a = pairs(w.x0, w.x1, sure), b = pairs(w.x2, w.x3, sure);
  if (!sure) return scalar_numbers(first, counter_hi, key, {out, 4 * hn::Lanes(d)});
  hn::StoreInterleaved4(a.first, a.second, b.first, b.second, d, out);
}

#endif

void fill_numbers(uint64_t first, uint64_t counter_hi, uint64_t key, std::span<float> out) {
#if HWY_TARGET != HWY_SCALAR
  const size_t together = 4 * hn::Lanes(Short());
  for (; out.size() >= together; out = out.subspan(together), first += together / 4) {
    vector_numbers(first, counter_hi, key, out.data());
  }
#endif
  scalar_numbers(first, counter_hi, key, out);
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace ebb
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace ebb {

HWY_EXPORT(fill_numbers);

void normal_numbers(uint64_t first, uint64_t counter_hi, uint64_t key, std::span<float> out) {
  HWY_DYNAMIC_DISPATCH(fill_numbers)(first, counter_hi, key, out);
}

}  // namespace ebb
#endif
