#include "cpu_adam/adamw.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "cpu_adam/adamw_kernel.h"
#include "cpu_adam/adamw_tasks.h"
#include "cpu_adam/master.h"
#include "device/adamw_planes.h"
#include "device/errors.h"
#include "system/thread_team.h"

namespace ebb {
namespace {

// Multiplies squares in a fixed order, because the results of pow() differ between C libraries.
double power(double base, int64_t exponent) {
  double result = 1;
  for (; exponent > 0; exponent >>= 1, base *= base) {
    if (exponent & 1) result *= base;
  }
  return result;
}

void check_runs(int64_t n, std::span<const AdamWRange> runs, const AdamWStep& step) {
  EBB_CHECK(step.t >= 1, "the first update is t = 1");
  int64_t end = 0;
  for (const AdamWRange& run : runs) {
    EBB_CHECK(run.first >= end && run.count >= 0, "runs must ascend and have lengths of 0 or more");
    end = run.first + run.count;
  }
  EBB_CHECK(n >= 0 && end <= n, "a run exceeds the planes");
}

/// Updates elements [begin, end).
void update_elements(const Planes& planes, int64_t begin, int64_t end,
                     std::span<const AdamWRange> runs, const AdamWStep& step) {
  for_each_part(runs, begin, end, [&](int64_t first, int64_t count, const AdamWRange& run) {
    adamw_update_range(planes.from(first), count,
                       adamw_coefficients(step, run.decay_factor, run.learning_rate_factor));
  });
}

}  // namespace

AdamWCoefficients adamw_coefficients(const AdamWStep& step, double decay_factor,
                                     double learning_rate_factor) {
  EBB_CHECK(step.t >= 1, "the first update is t = 1");
  const AdamW& adam = step.adam;
  const double learning_rate = step.learning_rate * learning_rate_factor;
  return {
      .gradient_scale = step.gradient_scale,
      .beta1 = static_cast<float>(adam.beta1),
      .one_minus_beta1 = static_cast<float>(1 - adam.beta1),
      .beta2 = static_cast<float>(adam.beta2),
      .one_minus_beta2 = static_cast<float>(1 - adam.beta2),
      .decay_rate = static_cast<float>(learning_rate * (adam.weight_decay * decay_factor)),
      .step_size = static_cast<float>(learning_rate / (1 - power(adam.beta1, step.t))),
      .v_correction = static_cast<float>(1 / std::sqrt(1 - power(adam.beta2, step.t))),
      .epsilon = static_cast<float>(adam.epsilon),
  };
}

void check_update(const Planes& planes, int64_t n, std::span<const AdamWRange> runs,
                  const AdamWStep& step) {
  check_runs(n, runs, step);
  if (runs.empty() || n == 0) return;
  check_planes(planes, all_planes(planes.weight_dtype));
  EBB_CHECK(is_float(planes.gradient_dtype) && planes.gradient, "no gradient of a float type");
}

void adamw_update(ThreadTeam& team, const Planes& planes, int64_t n,
                  std::span<const AdamWRange> runs, const AdamWStep& step) {
  check_update(planes, n, runs, step);
  if (runs.empty()) return;
  for_each_task(team, n, [&](int64_t begin, int64_t end) {
    update_elements(planes, begin, end, runs, step);
  });
}

/// Copies the weights of a task just before their update, which then finds them in a cache.
void adamw_update(ThreadTeam& team, const Planes& planes, std::byte* new_weights, int64_t n,
                  std::span<const AdamWRange> runs, const AdamWStep& step) {
  check_update(planes, n, runs, step);
  EBB_CHECK(new_weights != nullptr && planes[kWeightPlane] != nullptr, "two copies of the weights");
  const PlaneInfo& weights = state_planes(planes.weight_dtype)[kWeightPlane];
  Planes updated = planes;
  updated[kWeightPlane] = new_weights;
  for_each_task(team, n, [&](int64_t begin, int64_t end) {
    const auto bytes = [&](int64_t count) { return weights.bytes(static_cast<uint64_t>(count)); };
    std::memcpy(new_weights + bytes(begin), planes[kWeightPlane] + bytes(begin),
                bytes(end - begin));
    update_elements(updated, begin, end, runs, step);
  });
}

void move_planes_to_nodes(ThreadTeam& team, const Planes& planes, int64_t n) {
  if (team.nodes().size() < 2 || n == 0) return;
  const std::span<const PlaneInfo> infos = state_planes(planes.weight_dtype);
  for_each_task(team, n, [&](int64_t begin, int64_t end) {
    const Planes from = planes.from(begin);
    for (size_t i = 0; i < infos.size(); ++i) {
      if (from[i]) move_to_this_node(from[i], infos[i].bytes(static_cast<uint64_t>(end - begin)));
    }
  });
}

void adamw_update(ThreadTeam& team, const Planes& planes, int64_t n, const AdamWStep& step,
                  double decay_factor, double learning_rate_factor) {
  const AdamWRange run{0, n, decay_factor, learning_rate_factor};
  adamw_update(team, planes, n, {&run, 1}, step);
}

void read_masters(const Planes& planes, std::span<float> masters) {
  if (masters.empty()) return;
  check_planes(planes, master_planes(planes.weight_dtype));
  if (planes.weight_dtype == DType::F32) {
    std::copy_n(adamw_view<float, float>(planes).weight, masters.size(), masters.data());
  } else if (planes.weight_dtype == DType::F16) {
    std::copy_n(adamw_view<F16, float>(planes).remainder, masters.size(), masters.data());
  } else {
    const auto at = adamw_view<BF16, float>(planes);
    join_masters({at.weight, masters.size()}, {at.remainder, masters.size()}, masters);
  }
}

void write_masters(const Planes& planes, std::span<const float> masters) {
  if (masters.empty()) return;
  check_planes(planes, master_planes(planes.weight_dtype));
  if (planes.weight_dtype == DType::F32) {
    std::ranges::copy(masters, adamw_view<float, float>(planes).weight);
  } else if (planes.weight_dtype == DType::F16) {
    const auto at = adamw_view<F16, float>(planes);
    std::ranges::copy(masters, at.remainder);
    std::ranges::transform(masters, at.weight, [](float x) { return F16(x); });
  } else {
    const auto at = adamw_view<BF16, float>(planes);
    split_masters(masters, {at.weight, masters.size()}, {at.remainder, masters.size()});
  }
}

}  // namespace ebb
