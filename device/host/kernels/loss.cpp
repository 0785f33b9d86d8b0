#include <cmath>
#include <limits>
#include <string>
#include <type_traits>

#include "device/host/kernels/host_kernels.h"
#include "device/host/kernels/tasks.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "device/host/kernels/loss.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "device/host/kernels/simd-inl.h"

#ifndef EBB_HOST_KERNELS_LOSS_ARGUMENTS_
#define EBB_HOST_KERNELS_LOSS_ARGUMENTS_
namespace ebb {
namespace {

constexpr int32_t kIgnored = -100;

struct CrossEntropy {
  DType dtype;
  int64_t num_rows, num_classes;
  float* losses;
  void* logits;
  const int32_t* targets;
  std::optional<float> gradient_scale;
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

/// With `keep`, an fp32 row becomes its exponentials, which are then not computed twice.
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

/// x = softmax * scale, less scale at the target; rounded once. fp32 rows hold exponentials.
template <class T>
void write_gradient(T* x, int64_t n, int32_t target, float at_target, const Wide& top, float sum,
                    float scale) {
  const Wide factor = broadcast(scale / sum);
  for (int64_t i = 0; i < n; i += kWide) {
    Wide e = load_up_to(x + i, n - i);
    if constexpr (!std::is_same_v<T, float>) e = exp(e - top);
    store_up_to(x + i, e * factor, n - i);
  }
  alignas(64) float lanes[kWide];
  store(lanes, exp(broadcast(at_target) - top) / broadcast(sum));
  x[target] = static_cast<T>((lanes[0] - 1.0f) * scale);
}

template <class T>
void cross_entropy_row(const CrossEntropy& f, int64_t row) {
  const int64_t n = f.num_classes;
  T* x = static_cast<T*>(f.logits) + row * n;
  const int32_t target = f.targets[row];
  if (target == kIgnored) {
    f.losses[row] = 0.0f;
    if (f.gradient_scale) std::fill_n(x, n, T(0.0f));
    return;
  }
  const Wide top = row_max(x, n);
  const auto at_target = static_cast<float>(x[target]);
  const float sum = sum_of_exp(x, n, top, f.gradient_scale.has_value());
  const double shifted = static_cast<double>(at_target) - static_cast<double>(reduce_max(top));
  f.losses[row] = static_cast<float>(std::log(static_cast<double>(sum)) - shifted);
  if (f.gradient_scale) write_gradient(x, n, target, at_target, top, sum, *f.gradient_scale);
}

void run_cross_entropy(const CrossEntropy& f, ThreadTeam& team) {
  with_float_type(f.dtype, [&](auto zero) {
    for_each_range(team, f.num_rows, 4, [&](int64_t begin, int64_t end) {
      for (int64_t row = begin; row < end; ++row) cross_entropy_row<decltype(zero)>(f, row);
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

namespace {

void check_targets(const CrossEntropy& f) {
  for (int64_t i = 0; i < f.num_rows; ++i) {
    EBB_CHECK(f.targets[i] == kIgnored || (f.targets[i] >= 0 && f.targets[i] < f.num_classes),
              "cross_entropy: target " + std::to_string(f.targets[i]) + " at row " +
                  std::to_string(i) + " is not one of " + std::to_string(f.num_classes) +
                  " classes");
  }
}

/// Sixty-four lanes, then a tree: the order is part of the result.
double sum_in_tree(const float* values, int64_t n) {
  double lanes[64] = {};
  for (int64_t i = 0; i < n; ++i) lanes[i % 64] += static_cast<double>(values[i]);
  for (int half = 32; half > 0; half /= 2) {
    for (int l = 0; l < half; ++l) lanes[l] += lanes[l + half];
  }
  return lanes[0];
}

}  // namespace

void HostKernels::cross_entropy(Stream& stream, Tensor losses, Tensor logits, Tensor targets,
                                std::optional<float> gradient_scale) {
  const int64_t n = logits.rows();
  EBB_CHECK(is_float(logits.dtype), "cross_entropy: logits must be of a float type");
  EBB_CHECK(is_vector(losses, DType::F32, n) && is_vector(targets, DType::I32, n),
            "cross_entropy: losses (N) fp32, targets (N) int32");
  const CrossEntropy f{logits.dtype,       n,           logits.columns(),
                       losses.as<float>(), logits.data, targets.as<int32_t>(),
                       gradient_scale};
  const double passes = gradient_scale ? 2.0 : 1.0;
  stream.call({.flops = 10.0 * passes * static_cast<double>(logits.num_elements()),
               .bytes = total_bytes(losses, targets) + passes * total_bytes(logits),
               .name = "cross_entropy"},
              [this, f] {
                check_targets(f);
                const auto run = HWY_DYNAMIC_DISPATCH(run_cross_entropy);
                run(f, team_);
              });
}

void HostKernels::sum(Stream& stream, Tensor total, Tensor values, Write write) {
  EBB_CHECK(is_vector(total, DType::F64, 1) && values.dtype == DType::F32,
            "sum: total (1) fp64, values (N) fp32");
  stream.call({.flops = static_cast<double>(values.num_elements()),
               .bytes = total_bytes(total, values),
               .name = "sum"},
              [total, values, write] {
                const double value = sum_in_tree(values.as<float>(), values.num_elements());
                double* to = total.as<double>();
                *to = write == Write::Add ? *to + value : value;
              });
}

}  // namespace ebb
#endif
