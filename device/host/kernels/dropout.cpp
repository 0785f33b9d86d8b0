#include "device/host/kernels/host_launch.h"
#include "device/host/kernels/tasks.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "device/host/kernels/dropout.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "device/host/kernels/dropout-inl.h"
#include "system/thread_team.h"

HWY_BEFORE_NAMESPACE();
namespace ebb {
namespace HWY_NAMESPACE {
namespace {

constexpr int64_t kBlock = 4 * kWide;  // elements per call of dropout_factors()
constexpr int64_t kBlocksATask = 128;

/// Drops elements [first, first + n) of a row. `x`: the address of element `first`, which is a
/// multiple of kBlock.
template <class T>
HWY_INLINE void drop_block(const Dropout& d, uint32_t row, int64_t first, int64_t n, T* x) {
  uint32_t groups[kWide];
  for (int64_t l = 0; l < kWide; ++l) groups[l] = static_cast<uint32_t>(first / 4 + l);
  alignas(64) float factors[4][kWide], in_order[kBlock];
  dropout_factors(d, row, 0, groups, d.kept_factor(), factors);
  for (int64_t i = 0; i < kBlock; ++i) in_order[i] = factors[i % 4][i / 4];
  // Selects instead of multiplying, so that a dropped NaN or Inf becomes 0 as well.
  for (int64_t i = 0; i < n; i += kWide) {
    const Wide factor = load(in_order + i);
    store_up_to(x + i, where_positive(factor, load_up_to(x + i, n - i) * factor), n - i);
  }
}

void run_dropout(const Tensor& x, const Dropout& d, ThreadTeam& team) {
  const int64_t num_rows = x.dim(0), width = x.num_elements() / num_rows;
  const int64_t tasks_a_row = ceil_div(width, kBlock * kBlocksATask);
  with_float_type(x.dtype, [&](auto zero) {
    auto* const data = reinterpret_cast<decltype(zero)*>(x.data);
    team.for_each(num_rows * tasks_a_row, [&](int64_t task) {
      const int64_t row = task / tasks_a_row, begin = task % tasks_a_row * kBlock * kBlocksATask;
      const int64_t end = std::min(width, begin + kBlock * kBlocksATask);
      for (int64_t i = begin; i < end; i += kBlock) {
        drop_block(d, static_cast<uint32_t>(row), i, std::min(kBlock, end - i),
                   data + row * width + i);
      }
    });
  });
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace ebb
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace ebb {

HWY_EXPORT(run_dropout);

void ApplyDropout::run(const HostLaunch& host) const {
  HWY_DYNAMIC_DISPATCH(run_dropout)(x, dropout, host.team);
}

}  // namespace ebb
#endif
