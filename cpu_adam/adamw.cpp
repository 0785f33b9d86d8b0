#include "cpu_adam/adamw.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "cpu_adam/adamw_kernel.h"
#include "cpu_adam/adamw_tasks.h"
#include "cpu_adam/master.h"
#include "device/errors.h"
#include "system/thread_team.h"

namespace ebb {
namespace {

/// Whether weights and gradients may have this type.
bool is_trained(DType type) {
  return type == DType::F32 || type == DType::BF16 || type == DType::F16;
}

// Multiplies squares in a fixed order, because the results of pow() differ between C libraries.
double power(double base, int64_t exponent) {
  double result = 1;
  for (; exponent > 0; exponent >>= 1, base *= base) {
    if (exponent & 1) result *= base;
  }
  return result;
}

void check_weight(const Planes& planes) {
  EBB_CHECK(is_trained(planes.weight_dtype), name_of(planes.weight_dtype));
  EBB_CHECK(planes.weight, "no weight plane");
  EBB_CHECK((planes.low != nullptr) == (planes.weight_dtype == DType::BF16),
            "bf16 weights need the plane of low halves, others have none");
  EBB_CHECK((planes.master != nullptr) == (planes.weight_dtype == DType::F16),
            "fp16 weights need the plane of masters, others have none");
}

void check_all(const Planes& planes) {
  check_weight(planes);
  EBB_CHECK(is_trained(planes.gradient_dtype), name_of(planes.gradient_dtype));
  EBB_CHECK(planes.momentum && planes.variance && planes.gradient,
            "momentum, variance or gradient is missing");
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

BF16* split_weight(const Planes& planes) { return reinterpret_cast<BF16*>(planes.weight); }

void write_whole(const Planes& planes, std::span<const float> masters) {
  std::ranges::copy(masters, planes.master);
  std::ranges::transform(masters, reinterpret_cast<F16*>(planes.weight),
                         [](float x) { return F16(x); });
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

Planes Planes::from(int64_t first) const {
  const auto bytes = [first](DType type) { return static_cast<size_t>(first) * size_of(type); };
  Planes result = *this;
  result.weight += bytes(weight_dtype);
  if (low) result.low += first;
  if (master) result.master += first;
  if (momentum) result.momentum += first;
  if (variance) result.variance += first;
  if (gradient) result.gradient += bytes(gradient_dtype);
  return result;
}

void check_update(const Planes& planes, int64_t n, std::span<const AdamWRange> runs,
                  const AdamWStep& step) {
  check_runs(n, runs, step);
  if (!runs.empty() && n > 0) check_all(planes);
}

void adamw_update(ThreadTeam& team, const Planes& planes, int64_t n,
                  std::span<const AdamWRange> runs, const AdamWStep& step) {
  check_update(planes, n, runs, step);
  if (runs.empty()) return;
  for_each_task(team, n, [&](int64_t begin, int64_t end) {
    for_each_part(runs, begin, end, [&](int64_t first, int64_t count, const AdamWRange& run) {
      adamw_update_range(planes.from(first), count,
                         adamw_coefficients(step, run.decay_factor, run.learning_rate_factor));
    });
  });
}

void move_planes_to_nodes(ThreadTeam& team, const Planes& planes, int64_t n) {
  if (team.nodes().size() < 2 || n == 0) return;
  check_weight(planes);
  for_each_task(team, n, [&planes](int64_t begin, int64_t end) {
    const Planes from = planes.from(begin);
    const auto place = [count = static_cast<size_t>(end - begin)](void* plane, size_t bytes) {
      if (plane) move_to_this_node(static_cast<std::byte*>(plane), count * bytes);
    };
    place(from.weight, size_of(planes.weight_dtype));
    place(from.low, sizeof(int16_t));
    place(from.master, sizeof(float));
    place(from.momentum, sizeof(float));
    place(from.variance, sizeof(float));
  });
}

void adamw_update(ThreadTeam& team, const Planes& planes, int64_t n, const AdamWStep& step,
                  double decay_factor, double learning_rate_factor) {
  const AdamWRange run{0, n, decay_factor, learning_rate_factor};
  adamw_update(team, planes, n, {&run, 1}, step);
}

void read_masters(const Planes& planes, std::span<float> masters) {
  if (masters.empty()) return;
  check_weight(planes);
  if (planes.weight_dtype == DType::F32) {
    std::memcpy(masters.data(), planes.weight, masters.size_bytes());
  } else if (planes.weight_dtype == DType::F16) {
    std::memcpy(masters.data(), planes.master, masters.size_bytes());
  } else {
    join_masters({split_weight(planes), masters.size()}, {planes.low, masters.size()}, masters);
  }
}

void write_masters(const Planes& planes, std::span<const float> masters) {
  if (masters.empty()) return;
  check_weight(planes);
  if (planes.weight_dtype == DType::F32) {
    std::memcpy(planes.weight, masters.data(), masters.size_bytes());
  } else if (planes.weight_dtype == DType::F16) {
    write_whole(planes, masters);
  } else {
    split_masters(masters, {split_weight(planes), masters.size()}, {planes.low, masters.size()});
  }
}

}  // namespace ebb
