#include <cmath>
#include <limits>
#include <string>
#include <type_traits>

#include "device/host/kernels/host_launch.h"
#include "device/host/kernels/tasks.h"
#include "device/ignored_label.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "device/host/kernels/loss.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "device/host/kernels/simd-inl.h"
#include "system/thread_team.h"

#ifndef EBB_HOST_KERNELS_LOSS_ARGUMENTS_
#define EBB_HOST_KERNELS_LOSS_ARGUMENTS_
namespace ebb {
namespace {

struct WholeOperands {
  DType dtype;
  int64_t num_rows, num_classes;
  float* losses;
  void* logits;
  const int32_t* targets;
  std::optional<float> gradient_scale;
};

/// The statistics of the logits of a row; see CrossEntropyStatistics.
struct RowStatistics {
  float top, sum, at_target;
};

struct SlicedOperands {
  DType dtype;
  int64_t num_rows, width;
  ClassSlice slice;
  float* losses;  // null except for the last slice
  RowStatistics* statistics;
  void* logits;
  const int32_t* targets;
  float gradient_scale;

  bool is_first() const { return slice.first == 0; }
  bool has(int32_t target) const { return target >= slice.first && target < slice.first + width; }
};

}  // namespace
}  // namespace ebb
#endif

HWY_BEFORE_NAMESPACE();
namespace ebb {
namespace HWY_NAMESPACE {
namespace {

constexpr float kMinusInfinity = -std::numeric_limits<float>::infinity();

template <class T>
Wide row_max(const T* x, int64_t n) {
  Wide top = broadcast(kMinusInfinity);
  for (int64_t i = 0; i < n; i += kWide) top = max(top, load_up_to(x + i, n - i, kMinusInfinity));
  return broadcast(reduce_max(top));
}

/// With `keep`, replaces an fp32 row by its exponentials, so that they are not computed twice.
template <class T>
float sum_of_exp(T* x, int64_t n, const Wide& top, bool keep) {
  Wide sum = broadcast(0.0f);
  for (int64_t i = 0; i < n; i += kWide) {
    const Wide e = exp(load_up_to(x + i, n - i, kMinusInfinity) - top);
    if constexpr (std::is_same_v<T, float>) {
      if (keep) store_up_to(x + i, e, n - i);
    }
    sum = sum + e;
  }
  return reduce_add(sum);
}

/// Computes x = softmax * scale, rounded once.
template <bool kHoldsExponentials, class T>
void write_softmax(T* x, int64_t n, const Wide& top, float sum, float scale) {
  const Wide factor = broadcast(scale / sum);
  for (int64_t i = 0; i < n; i += kWide) {
    Wide e = load_up_to(x + i, n - i);
    if constexpr (!kHoldsExponentials) e = exp(e - top);
    store_up_to(x + i, e * factor, n - i);
  }
}

/// (softmax - 1) * scale
float gradient_at_target(float logit, const Wide& top, float sum, float scale) {
  alignas(64) float lanes[kWide];
  store(lanes, exp(broadcast(logit) - top) / broadcast(sum));
  return (lanes[0] - 1.0f) * scale;
}

float loss_of(float top, float sum, float at_target) {
  const double shifted = static_cast<double>(at_target) - static_cast<double>(top);
  return static_cast<float>(std::log(static_cast<double>(sum)) - shifted);
}

template <class T>
void cross_entropy_row(const WholeOperands& f, int64_t row) {
  const int64_t n = f.num_classes;
  T* x = static_cast<T*>(f.logits) + row * n;
  const int32_t target = f.targets[row];
  if (target == kIgnoredLabel) {
    f.losses[row] = 0.0f;
    if (f.gradient_scale) std::fill_n(x, n, T(0.0f));
    return;
  }
  const Wide top = row_max(x, n);
  const auto at_target = static_cast<float>(x[target]);
  const float sum = sum_of_exp(x, n, top, f.gradient_scale.has_value());
  f.losses[row] = loss_of(reduce_max(top), sum, at_target);
  if (!f.gradient_scale) return;
  // An fp32 row now contains its exponentials.
  write_softmax<std::is_same_v<T, float>>(x, n, top, sum, *f.gradient_scale);
  x[target] = static_cast<T>(gradient_at_target(at_target, top, sum, *f.gradient_scale));
}

void run_cross_entropy(const WholeOperands& f, ThreadTeam& team) {
  with_float_type(f.dtype, [&](auto zero) {
    for_each_range(team, f.num_rows, 4, [&](int64_t begin, int64_t end) {
      for (int64_t row = begin; row < end; ++row) cross_entropy_row<decltype(zero)>(f, row);
    });
  });
}

/// Adds a slice to the statistics of a row.
template <class T>
void add_statistics(const SlicedOperands& f, int64_t row) {
  T* x = static_cast<T*>(f.logits) + row * f.width;
  const int32_t target = f.targets[row];
  if (target == kIgnoredLabel) {
    if (f.losses != nullptr) f.losses[row] = 0.0f;
    return;
  }
  RowStatistics& known = f.statistics[row];
  if (f.is_first()) known = {kMinusInfinity, 0.0f, kMinusInfinity};
  const Wide before = broadcast(known.top);
  const Wide top = max(row_max(x, f.width), before);
  float sum = sum_of_exp(x, f.width, top, false);
  if (!f.is_first()) {
    alignas(64) float shrunk[kWide];
    store(shrunk, exp(before - top));
    sum += known.sum * shrunk[0];
  }
  known.top = reduce_max(top);
  known.sum = sum;
  if (f.has(target)) known.at_target = static_cast<float>(x[target - f.slice.first]);
  if (f.losses != nullptr) f.losses[row] = loss_of(known.top, known.sum, known.at_target);
}

template <class T>
void write_slice_gradient(const SlicedOperands& f, int64_t row) {
  T* x = static_cast<T*>(f.logits) + row * f.width;
  const int32_t target = f.targets[row];
  if (target == kIgnoredLabel) {
    std::fill_n(x, f.width, T(0.0f));
    return;
  }
  const RowStatistics& known = f.statistics[row];
  const Wide top = broadcast(known.top);
  write_softmax<false>(x, f.width, top, known.sum, f.gradient_scale);
  if (!f.has(target)) return;
  x[target - f.slice.first] =
      static_cast<T>(gradient_at_target(known.at_target, top, known.sum, f.gradient_scale));
}

void run_statistics(const SlicedOperands& f, ThreadTeam& team) {
  with_float_type(f.dtype, [&](auto zero) {
    for_each_range(team, f.num_rows, 4, [&](int64_t begin, int64_t end) {
      for (int64_t row = begin; row < end; ++row) add_statistics<decltype(zero)>(f, row);
    });
  });
}

void run_slice_gradient(const SlicedOperands& f, ThreadTeam& team) {
  with_float_type(f.dtype, [&](auto zero) {
    for_each_range(team, f.num_rows, 4, [&](int64_t begin, int64_t end) {
      for (int64_t row = begin; row < end; ++row) write_slice_gradient<decltype(zero)>(f, row);
    });
  });
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace ebb
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace ebb {

HWY_EXPORT(run_cross_entropy);
HWY_EXPORT(run_statistics);
HWY_EXPORT(run_slice_gradient);

namespace {

void check_targets(const int32_t* targets, int64_t num_rows, int64_t num_classes) {
  for (int64_t i = 0; i < num_rows; ++i) {
    EBB_CHECK(targets[i] == kIgnoredLabel || (targets[i] >= 0 && targets[i] < num_classes),
              "cross_entropy: target " + std::to_string(targets[i]) + " at row " +
                  std::to_string(i) + " is not one of " + std::to_string(num_classes) + " classes");
  }
}

SlicedOperands describe(const Tensor& statistics, const Tensor& logits, const Tensor& targets,
                        ClassSlice slice) {
  static_assert(sizeof(RowStatistics) == 3 * sizeof(float));
  return {.dtype = logits.dtype,
          .num_rows = logits.rows(),
          .width = logits.columns(),
          .slice = slice,
          .losses = nullptr,
          .statistics = reinterpret_cast<RowStatistics*>(statistics.as<float>()),
          .logits = logits.data,
          .targets = targets.as<int32_t>(),
          .gradient_scale = 0};
}

/// Adds in 64 partial sums, then in a tree. The order of the additions is part of the result.
double sum_in_tree(const float* values, int64_t n) {
  double lanes[64] = {};
  for (int64_t i = 0; i < n; ++i) lanes[i % 64] += static_cast<double>(values[i]);
  for (int half = 32; half > 0; half /= 2) {
    for (int l = 0; l < half; ++l) lanes[l] += lanes[l + half];
  }
  return lanes[0];
}

}  // namespace

void CrossEntropy::run(const HostLaunch& host) const {
  const WholeOperands f{logits.dtype, logits.rows(),         logits.columns(), losses.as<float>(),
                        logits.data,  targets.as<int32_t>(), gradient_scale};
  check_targets(f.targets, f.num_rows, f.num_classes);
  HWY_DYNAMIC_DISPATCH(run_cross_entropy)(f, host.team);
}

void CrossEntropyStatistics::run(const HostLaunch& host) const {
  SlicedOperands f = describe(statistics, logits, targets, slice);
  if (is_last()) f.losses = losses.as<float>();
  check_targets(f.targets, f.num_rows, slice.num_classes);
  HWY_DYNAMIC_DISPATCH(run_statistics)(f, host.team);
}

void CrossEntropyGradient::run(const HostLaunch& host) const {
  SlicedOperands f = describe(statistics, logits, targets, slice);
  f.gradient_scale = gradient_scale;
  check_targets(f.targets, f.num_rows, slice.num_classes);
  HWY_DYNAMIC_DISPATCH(run_slice_gradient)(f, host.team);
}

void Sum::run(const HostLaunch&) const {
  const double value = sum_in_tree(values.as<float>(), values.num_elements());
  double* to = total.as<double>();
  *to = write == Write::Add ? *to + value : value;
}

}  // namespace ebb
#endif
