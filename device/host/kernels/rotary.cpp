#include <cmath>

#include "device/host/kernels/host_launch.h"
#include "device/host/kernels/tasks.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "device/host/kernels/rotary.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "device/host/kernels/simd-inl.h"
#include "system/thread_team.h"

#ifndef EBB_HOST_KERNELS_ROTARY_ARGUMENTS_
#define EBB_HOST_KERNELS_ROTARY_ARGUMENTS_
namespace ebb {
namespace {

struct RotaryOperands {
  DType dtype;
  int64_t num_rows, num_columns, num_heads, half;  // half a head
  void* x;
  const float* table;
  float sine_sign;
};

}  // namespace
}  // namespace ebb
#endif

HWY_BEFORE_NAMESPACE();
namespace ebb {
namespace HWY_NAMESPACE {
namespace {

template <class T>
void turn_row(const RotaryOperands& f, int64_t row) {
  const float* cosines = f.table + row * 2 * f.half;
  const float* sines = cosines + f.half;
  const Wide sign = broadcast(f.sine_sign);
  T* head = static_cast<T*>(f.x) + row * f.num_columns;
  for (int64_t h = 0; h < f.num_heads; ++h, head += 2 * f.half) {
    for (int64_t i = 0; i < f.half; i += kWide) {
      const int64_t left = f.half - i;
      const Wide c = load_up_to(cosines + i, left), s = load_up_to(sines + i, left) * sign;
      const Wide a = load_up_to(head + i, left), b = load_up_to(head + f.half + i, left);
      store_up_to(head + i, a * c - b * s, left);
      store_up_to(head + f.half + i, b * c + a * s, left);
    }
  }
}

void turn(const RotaryOperands& f, ThreadTeam& team) {
  with_float_type(f.dtype, [&](auto zero) {
    for_each_range(team, f.num_rows, 16, [&](int64_t begin, int64_t end) {
      for (int64_t row = begin; row < end; ++row) turn_row<decltype(zero)>(f, row);
    });
  });
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
  float* cosines = f.table.as<float>() + row * 2 * half;
  for (int64_t i = 0; i < half; ++i) {
    const double angle = position * f.frequencies[static_cast<size_t>(i)];
    cosines[i] = static_cast<float>(f.factor * std::cos(angle));
    cosines[half + i] = static_cast<float>(f.factor * std::sin(angle));
  }
}

}  // namespace

void RotaryTable::run(const HostLaunch& host) const {
  for_each_range(host.team, table.rows(), 16, [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) fill_row(*this, row);
  });
}

void ApplyRotary::run(const HostLaunch& host) const {
  const float sign = direction == RotaryDirection::Forward ? 1.0f : -1.0f;
  const RotaryOperands f{x.dtype, x.rows(),          x.columns(), num_heads, table.columns() / 2,
                         x.data,  table.as<float>(), sign};
  HWY_DYNAMIC_DISPATCH(turn)(f, host.team);
}

}  // namespace ebb
#endif
