#include <cmath>
#include <optional>
#include <string>
#include <type_traits>

#include "device/host/kernels/host_launch.h"
#include "device/host/kernels/tasks.h"
#include "device/ignored_label.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "device/host/kernels/loss.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "device/host/kernels/softmax-inl.h"
#include "system/thread_team.h"

HWY_BEFORE_NAMESPACE();
namespace ebb {
namespace HWY_NAMESPACE {
namespace {

/// The statistics of the logits of a row; see CrossEntropyStatistics.
struct RowStatistics {
  float top, sum, at_target;
};

/// The target of a row in a slice, counted from the first class of the slice; nullopt if the target
/// is in another slice.
std::optional<int64_t> target_in(ClassSlice slice, int32_t target) {
  const int64_t i = target - slice.first;
  return i >= 0 && i < slice.count ? std::optional(i) : std::nullopt;
}

RowStatistics& statistics_of(const Tensor& statistics, int64_t row) {
  static_assert(sizeof(RowStatistics) == 3 * sizeof(float));
  return reinterpret_cast<RowStatistics*>(statistics.as<float>())[row];
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
void cross_entropy_row(const CrossEntropy& f, int64_t row) {
  const int64_t n = f.logits.columns();
  T* x = row_of<T>(f.logits, row);
  float& loss = f.losses.as<float>()[row];
  const int32_t target = f.targets.as<int32_t>()[row];
  if (target == kIgnoredLabel) {
    loss = 0.0f;
    if (f.gradient_scale) std::fill_n(x, n, T(0.0f));
    return;
  }
  const Wide top = row_max(x, n);
  const auto at_target = static_cast<float>(x[target]);
  const float sum = sum_of_exp(x, n, top, f.gradient_scale.has_value());
  loss = loss_of(reduce_max(top), sum, at_target);
  if (!f.gradient_scale) return;
  // An fp32 row now contains its exponentials.
  write_softmax<std::is_same_v<T, float>>(x, x, n, top, sum, *f.gradient_scale);
  x[target] = static_cast<T>(gradient_at_target(at_target, top, sum, *f.gradient_scale));
}

void run_cross_entropy(const CrossEntropy& f, ThreadTeam& team) {
  for_each_float_row(team, f.logits, 4,
                     [&](auto zero, int64_t row) { cross_entropy_row<decltype(zero)>(f, row); });
}

/// Adds a slice to the statistics of a row.
template <class T>
void add_statistics(const CrossEntropyStatistics& f, int64_t row) {
  const int64_t n = f.logits.columns();
  T* x = row_of<T>(f.logits, row);
  float& loss = f.losses.as<float>()[row];
  const int32_t target = f.targets.as<int32_t>()[row];
  if (target == kIgnoredLabel) {
    if (f.slice.is_last()) loss = 0.0f;
    return;
  }
  const bool is_first = f.slice.first == 0;
  RowStatistics& known = statistics_of(f.statistics, row);
  if (is_first) known = {kMinusInfinity, 0.0f, kMinusInfinity};
  const Wide before = broadcast(known.top);
  const Wide top = max(row_max(x, n), before);
  float sum = sum_of_exp(x, n, top, false);
  if (!is_first) {
    alignas(64) float shrunk[kWide];
    store(shrunk, exp(before - top));
    sum += known.sum * shrunk[0];
  }
  known.top = reduce_max(top);
  known.sum = sum;
  if (const auto at = target_in(f.slice, target)) known.at_target = static_cast<float>(x[*at]);
  if (f.slice.is_last()) loss = loss_of(known.top, known.sum, known.at_target);
}

template <class T>
void write_slice_gradient(const CrossEntropyGradient& f, int64_t row) {
  const int64_t n = f.logits.columns();
  T* x = row_of<T>(f.logits, row);
  const int32_t target = f.targets.as<int32_t>()[row];
  if (target == kIgnoredLabel) {
    std::fill_n(x, n, T(0.0f));
    return;
  }
  const RowStatistics& known = statistics_of(f.statistics, row);
  const Wide top = broadcast(known.top);
  write_softmax<false>(x, x, n, top, known.sum, f.gradient_scale);
  if (const auto at = target_in(f.slice, target)) {
    x[*at] = static_cast<T>(gradient_at_target(known.at_target, top, known.sum, f.gradient_scale));
  }
}

void run_statistics(const CrossEntropyStatistics& f, ThreadTeam& team) {
  for_each_float_row(team, f.logits, 4,
                     [&](auto zero, int64_t row) { add_statistics<decltype(zero)>(f, row); });
}

void run_slice_gradient(const CrossEntropyGradient& f, ThreadTeam& team) {
  for_each_float_row(team, f.logits, 4,
                     [&](auto zero, int64_t row) { write_slice_gradient<decltype(zero)>(f, row); });
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

void check_targets(const Tensor& targets, int64_t num_classes) {
  const auto values = targets.span<int32_t>();
  for (size_t i = 0; i < values.size(); ++i) {
    EBB_CHECK(values[i] == kIgnoredLabel || (values[i] >= 0 && values[i] < num_classes),
              "cross_entropy: target " + std::to_string(values[i]) + " at row " +
                  std::to_string(i) + " is not one of " + std::to_string(num_classes) + " classes");
  }
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

void check_no_padding(const Tensor& logits, int64_t width) {
  EBB_CHECK(logits.columns() == width, "the host computes no loss of logits with padding");
}

}  // namespace

void CrossEntropy::run(const HostLaunch& host) const {
  check_no_padding(logits, width());
  check_targets(targets, logits.columns());
  HWY_DYNAMIC_DISPATCH(run_cross_entropy)(*this, host.team);
}

void CrossEntropyStatistics::run(const HostLaunch& host) const {
  check_no_padding(logits, slice.count);
  check_targets(targets, slice.num_classes);
  HWY_DYNAMIC_DISPATCH(run_statistics)(*this, host.team);
}

void CrossEntropyGradient::run(const HostLaunch& host) const {
  check_no_padding(logits, slice.count);
  check_targets(targets, slice.num_classes);
  HWY_DYNAMIC_DISPATCH(run_slice_gradient)(*this, host.team);
}

void Sum::run(const HostLaunch&) const {
  const double value = sum_in_tree(values.as<float>(), values.num_elements());
  double* to = total.as<double>();
  *to = write == Write::Add ? *to + value : value;
}

}  // namespace ebb
#endif
