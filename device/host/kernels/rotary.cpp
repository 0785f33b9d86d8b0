#include <cmath>

#include "device/host/kernels/host_kernels.h"
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

struct RotaryCall {
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
void turn_row(const RotaryCall& f, int64_t row) {
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

void turn(const RotaryCall& f, ThreadTeam& team) {
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

struct TableCall {
  int64_t num_rows;
  float* table;
  const int32_t* positions;
  std::span<const double> frequencies;
  double factor;

  void fill_row(int64_t row) const {
    const auto half = static_cast<int64_t>(frequencies.size());
    float* cosines = table + row * 2 * half;
    for (int64_t i = 0; i < half; ++i) {
      const double angle = positions[row] * frequencies[static_cast<size_t>(i)];
      cosines[i] = static_cast<float>(factor * std::cos(angle));
      cosines[half + i] = static_cast<float>(factor * std::sin(angle));
    }
  }
};

}  // namespace

void HostKernels::rotary_table(Stream& stream, Tensor table, Tensor positions,
                               std::span<const double> frequencies, double factor) {
  const Cost cost = check_rotary_table(table, positions, frequencies);
  const int64_t n = table.rows();
  const TableCall f{n, table.as<float>(), positions.as<int32_t>(), frequencies, factor};
  stream.submit(cost, [this, f] {
    for_each_range(team_, f.num_rows, 16, [&](int64_t begin, int64_t end) {
      for (int64_t row = begin; row < end; ++row) f.fill_row(row);
    });
  });
}

void HostKernels::rotary(Stream& stream, Tensor x, Tensor table, int64_t num_heads,
                         RotaryDirection way) {
  const Cost cost = check_rotary(x, table, num_heads);
  const int64_t n = x.rows(), width = table.columns();
  const RotaryCall f{
      x.dtype,   n,      x.columns(),       num_heads,
      width / 2, x.data, table.as<float>(), way == RotaryDirection::Forward ? 1.0f : -1.0f};
  stream.submit(cost, [this, f] {
    const auto run = HWY_DYNAMIC_DISPATCH(turn);
    run(f, team_);
  });
}

}  // namespace ebb
#endif
