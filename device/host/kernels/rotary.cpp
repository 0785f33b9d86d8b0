#include <cmath>

#include "device/host/kernels/host_launch.h"
#include "device/host/kernels/tasks.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "device/host/kernels/rotary.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "device/host/kernels/simd-inl.h"
#include "system/thread_team.h"

HWY_BEFORE_NAMESPACE();
namespace ebb {
namespace HWY_NAMESPACE {
namespace {

template <class T>
void turn_row(const ApplyRotary& f, int64_t row) {
  const int64_t half = f.table.columns() / 2;
  const float *cosines = row_of<float>(f.table, row), *sines = cosines + half;
  const Wide sign = broadcast(f.direction == RotaryDirection::Forward ? 1.0f : -1.0f);
  T* head = row_of<T>(f.x, row);
  for (int64_t h = 0; h < f.num_heads; ++h, head += 2 * half) {
    for (int64_t i = 0; i < half; i += kWide) {
      const int64_t left = half - i;
      const Wide c = load_up_to(cosines + i, left), s = load_up_to(sines + i, left) * sign;
      const Wide a = load_up_to(head + i, left), b = load_up_to(head + half + i, left);
      store_up_to(head + i, a * c - b * s, left);
      store_up_to(head + half + i, b * c + a * s, left);
    }
  }
}

void turn(const ApplyRotary& f, ThreadTeam& team) {
  for_each_float_row(team, f.x, 16,
                     [&](auto zero, int64_t row) { turn_row<decltype(zero)>(f, row); });
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace ebb
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace ebb {

HWY_EXPORT(turn);

namespace {

void fill_row(const RotaryTable& f, int64_t row) {
  const auto half = static_cast<int64_t>(f.frequencies.size());
  const int32_t position = f.positions.as<int32_t>()[row];
  float* cosines = row_of<float>(f.table, row);
  for (int64_t i = 0; i < half; ++i) {
    const double angle = position * f.frequencies[static_cast<size_t>(i)];
    cosines[i] = static_cast<float>(f.factor * std::cos(angle));
    cosines[half + i] = static_cast<float>(f.factor * std::sin(angle));
  }
}

}  // namespace

void RotaryTable::run(const HostLaunch& host) const {
  for_each_row(host.team, table.rows(), 16, [&](int64_t row) { fill_row(*this, row); });
}

void ApplyRotary::run(const HostLaunch& host) const {
  HWY_DYNAMIC_DISPATCH(turn)(*this, host.team);
}

}  // namespace ebb
#endif
