#include "device/host/kernels/host_launch.h"
#include "device/host/kernels/tasks.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "device/host/kernels/gradient.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "device/host/kernels/simd-inl.h"
#include "system/thread_team.h"

HWY_BEFORE_NAMESPACE();
namespace ebb {
namespace HWY_NAMESPACE {
namespace {

constexpr int64_t kNumPartialSums = 64;

/// Partial sum l adds the squares of elements l, l + 64, ... in fp64, where a product of two fp32
/// is exact.
struct PartialSums {
  double sums[kNumPartialSums] = {};

  /// Adds n more elements. REQUIRES: the number of elements added so far is a multiple of 64.
  template <class T>
  void add(const T* x, int64_t n) {
    int64_t i = 0;
    for (; i + kNumPartialSums <= n; i += kNumPartialSums) add_to_each(x + i);
    for (int64_t l = 0; i + l < n; ++l) add_one(l, x[i + l]);
  }
  double total() {
    for (int64_t half = kNumPartialSums / 2; half > 0; half /= 2) {
      for (int64_t l = 0; l < half; ++l) sums[l] += sums[l + half];
    }
    return sums[0];
  }

 private:
  template <class T>
  void add_to_each(const T* x) {
    for (int64_t l = 0; l < kNumPartialSums; ++l) add_one(l, x[l]);
  }
  /// Compilers do not vectorise the conversion of F16, so it is done in vectors first.
  void add_to_each(const F16* x) {
    alignas(64) float wide[kNumPartialSums];
    for (int64_t l = 0; l < kNumPartialSums; l += kWide) store(wide + l, load(x + l));
    add_to_each(wide);
  }
  void add_one(int64_t l, float x) {
    const double v = static_cast<double>(x);
    sums[l] += v * v;
  }
};

/// Stores the rounded elements [begin, begin + n) to `to`.
template <class T>
void round_range(T* to, const RoundGradient& f, int64_t begin, int64_t n) {
  const float* sums = f.sums.as<float>() + begin;
  const float* more_sums = f.more_sums ? f.more_sums.as<float>() + begin : nullptr;
  for (int64_t i = 0; i < n; i += kWide) {
    Wide sum = load_up_to(sums + i, n - i);
    if (more_sums != nullptr) sum = sum + load_up_to(more_sums + i, n - i);
    store_up_to(to + i, sum, n - i);
  }
}

/// Rounds a piece and returns its sum of squares. Works in blocks that fit the first-level cache.
/// The gradient is not read soon, so it is written past the caches.
template <class T>
double round_piece(const RoundGradient& f, int64_t begin, int64_t n) {
  constexpr int64_t kBlock = 1024;
  T* gradient = f.gradient.as<T>() + begin;
  alignas(64) T block[kBlock];
  PartialSums squares;
  for (int64_t i = 0; i < n; i += kBlock) {
    const int64_t count = std::min(kBlock, n - i);
    const auto bytes = count * static_cast<int64_t>(sizeof(T));
    round_range(block, f, begin + i, count);
    squares.add(block, count);
    if (is_whole_lines(gradient + i, bytes)) {
      stream_lines(gradient + i, block, bytes);
    } else {
      std::memcpy(gradient + i, block, static_cast<size_t>(bytes));
    }
  }
  hwy::FlushStream();
  return squares.total();
}

void run_round(const RoundGradient& f, ThreadTeam& team) {
  with_float_type(f.gradient.dtype, [&](auto zero) {
    using T = decltype(zero);
    for_each_range(
        team, f.gradient.num_elements(), kPieceElements, [&](int64_t begin, int64_t end) {
          if (!f.partials) {
            round_range(f.gradient.as<T>() + begin, f, begin, end - begin);
          } else {
            f.partials.as<double>()[begin / kPieceElements] = round_piece<T>(f, begin, end - begin);
          }
        });
  });
}

void run_squared_norm(double* partials, const Tensor& gradient, ThreadTeam& team) {
  with_float_type(gradient.dtype, [&](auto zero) {
    const auto* x = reinterpret_cast<const decltype(zero)*>(gradient.data);
    for_each_range(team, gradient.num_elements(), kPieceElements, [&](int64_t begin, int64_t end) {
      PartialSums squares;
      squares.add(x + begin, end - begin);
      partials[begin / kPieceElements] = squares.total();
    });
  });
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace ebb
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace ebb {

HWY_EXPORT(run_round);
HWY_EXPORT(run_squared_norm);

void RoundGradient::run(const HostLaunch& host) const {
  HWY_DYNAMIC_DISPATCH(run_round)(*this, host.team);
}

void SquaredNormPieces::run(const HostLaunch& host) const {
  HWY_DYNAMIC_DISPATCH(run_squared_norm)(partials.as<double>(), gradient, host.team);
}

}  // namespace ebb
#endif
