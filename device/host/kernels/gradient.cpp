#include "device/host/kernels/host_launch.h"
#include "device/host/kernels/tasks.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "device/host/kernels/gradient.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "device/host/kernels/simd-inl.h"
#include "device/partial_norm-inl.h"
#include "system/thread_team.h"

HWY_BEFORE_NAMESPACE();
namespace ebb {
namespace HWY_NAMESPACE {
namespace {

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
