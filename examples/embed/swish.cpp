#include "swish.h"

#include <cmath>
#include <cstdint>

#include "swish_kernels.h"

namespace {

/// A piece of a loop takes some 10 us or more: a piece on another thread costs a few us.
constexpr int64_t kElementsAPiece = 4096, kColumnsAPiece = 16;

float sigmoid(float x) { return 1 / (1 + std::exp(-x)); }

/// Stores or adds, as Ebb's kernels do.
void write_to(float& to, float value, ebb::Write write) {
  to = write == ebb::Write::Add ? to + value : value;
}

bool fit(const ebb::Tensor& y, const ebb::Tensor& x, const ebb::Tensor& slope) {
  return x.dtype == ebb::DType::F32 && y.dtype == x.dtype && y.shape == x.shape &&
         slope.dtype == x.dtype && slope.num_elements() == x.columns();
}

ebb::Cost cost_of(const ebb::Tensor& x, int flops, int passes, std::string_view name) {
  const double arithmetic = static_cast<double>(x.num_elements()) * flops;
  return {.flops = arithmetic,
          .vector_flops = arithmetic,
          .bytes = static_cast<double>(x.bytes()) * passes,
          .name = name};
}

}  // namespace

// ---- The checks: the same for the host and for a GPU. A plan knows a kernel by its cost.

ebb::Cost SwishForward::check() const {
  EBB_CHECK_TENSORS(fit(y, x, slope), "swish: y and x (N, C), slope (C), fp32", y, x, slope);
  return cost_of(x, 15, 2, "swish");
}

ebb::Cost SwishBackwardInput::check() const {
  EBB_CHECK_TENSORS(fit(dx, x, slope) && fit(dy, x, slope),
                    "swish backward: dx, dy and x (N, C), slope (C), fp32", dx, dy, x, slope);
  return cost_of(x, 20, 3, "swish backward");
}

ebb::Cost SwishBackwardSlope::check() const {
  EBB_CHECK_TENSORS(fit(dy, x, slope) && dslope.num_elements() == slope.num_elements(),
                    "swish slope: dslope and slope (C), dy and x (N, C), fp32", dslope, slope, dy,
                    x);
  return cost_of(x, 20, 2, "swish slope");
}

// ---- The host. The loops divide their work in the same way for every number of threads.

void SwishForward::run(ebb::ThreadTeam& team) const {
  const float *in = x.as<float>(), *slopes = slope.as<float>();
  float* out = y.as<float>();
  ebb::for_each_range(team, x.num_elements(), kElementsAPiece, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) out[i] = in[i] * sigmoid(slopes[i % x.columns()] * in[i]);
  });
}

void SwishBackwardInput::run(ebb::ThreadTeam& team) const {
  const float *in = x.as<float>(), *slopes = slope.as<float>(), *gradient = dy.as<float>();
  float* out = dx.as<float>();
  ebb::for_each_range(team, x.num_elements(), kElementsAPiece, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const float z = slopes[i % x.columns()] * in[i], s = sigmoid(z);
      write_to(out[i], gradient[i] * (s + z * s * (1 - s)), write);
    }
  });
}

/// A contribution is summed from zero and then added once, so that only the order of the
/// micro-batches counts.
void SwishBackwardSlope::run(ebb::ThreadTeam& team) const {
  const float *in = x.as<float>(), *slopes = slope.as<float>(), *gradient = dy.as<float>();
  float* out = dslope.as<float>();
  const int64_t columns = x.columns();
  ebb::for_each_row(team, columns, kColumnsAPiece, [&](int64_t c) {
    float sum = 0;
    for (int64_t i = c; i < x.num_elements(); i += columns) {
      const float s = sigmoid(slopes[c] * in[i]);
      sum += gradient[i] * in[i] * in[i] * s * (1 - s);
    }
    write_to(out[c], sum, write);
  });
}

// ---- The primitive: which kernels run in the forward and in the backward.

ebb::Variable swish(ebb::Tape& tape, ebb::Variable x, ebb::ParameterId slope) {
  tape.begin_call("swish", {{slope}});
  const ebb::Variable y = tape.output(x.value.shape, x.value.dtype);
  tape.end_call(
      [x, y](const ebb::Forward& f) {
        f.submit(SwishForward{f.value(y), f.value(x), f.weight(0)});
      },
      [x, y](const ebb::Backward& b) {
        const ebb::Tensor dy = b.gradient(y), values = b.value(x), weight = b.weight(0);
        if (x.has_gradient()) {  // an input of the model has none
          const ebb::GradientTarget dx = b.input_gradient(x);
          b.submit(SwishBackwardInput{dx.sums, dy, values, weight, dx.write});
        }
        const ebb::GradientTarget dslope = b.weight_gradient(0);
        b.submit(SwishBackwardSlope{dslope.sums, dy, values, weight, dslope.write});
      });
  return y;
}
