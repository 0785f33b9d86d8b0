#include <immintrin.h>

#include "bench/peak.h"

#pragma GCC push_options
#pragma GCC target("avx512f,avx512bf16")

namespace ebb::bench {

double dot_products(int64_t rounds, float* sink) {
  constexpr int kChains = 12;
  const auto a = reinterpret_cast<__m512bh>(_mm512_set1_epi32(0x3f803f00));
  const auto b = reinterpret_cast<__m512bh>(_mm512_set1_epi32(0x3c003b80));
  __m512 sum[kChains];
#pragma GCC unroll 16
  for (int i = 0; i < kChains; ++i) sum[i] = _mm512_set1_ps(*sink + static_cast<float>(i));
  for (int64_t round = 0; round < rounds; ++round) {
#pragma GCC unroll 16
    for (int i = 0; i < kChains; ++i) sum[i] = _mm512_dpbf16_ps(sum[i], a, b);
  }
#pragma GCC unroll 16
  for (int i = 1; i < kChains; ++i) sum[0] = _mm512_add_ps(sum[0], sum[i]);
  *sink = _mm512_cvtss_f32(sum[0]);
  return 4.0 * 16 * kChains * static_cast<double>(rounds);
}

}  // namespace ebb::bench

#pragma GCC pop_options
