#include "swish.h"

#include <cmath>
#include <cstdint>

namespace {

float sigmoid(float x) { return 1 / (1 + std::exp(-x)); }

const float* floats(const ebb::Tensor& t) { return reinterpret_cast<const float*>(t.data); }
float* mutable_floats(const ebb::Tensor& t) { return reinterpret_cast<float*>(t.data); }

/// Meets what is there as Ebb's kernels do.
void write(float& to, float value, ebb::Write how) {
  to = how == ebb::Write::Add ? to + value : value;
}

void forward(ebb::Tensor y, ebb::Tensor x, ebb::Tensor slope) {
  const int64_t columns = x.columns();
  for (int64_t i = 0; i < x.num_elements(); ++i) {
    const float value = floats(x)[i];
    mutable_floats(y)[i] = value * sigmoid(floats(slope)[i % columns] * value);
  }
}

void backward_input(ebb::GradientTarget dx, ebb::Tensor dy, ebb::Tensor x, ebb::Tensor slope) {
  const int64_t columns = x.columns();
  for (int64_t i = 0; i < x.num_elements(); ++i) {
    const float z = floats(slope)[i % columns] * floats(x)[i];
    const float s = sigmoid(z);
    write(mutable_floats(dx.sums)[i], floats(dy)[i] * (s + z * s * (1 - s)), dx.write);
  }
}

// Each contribution is summed from zero and then added once, so that the order of micro-batches is
// all that counts.
void backward_slope(ebb::GradientTarget dslope, ebb::Tensor dy, ebb::Tensor x, ebb::Tensor slope) {
  const int64_t columns = x.columns();
  for (int64_t c = 0; c < columns; ++c) {
    float sum = 0;
    for (int64_t i = c; i < x.num_elements(); i += columns) {
      const float value = floats(x)[i];
      const float s = sigmoid(floats(slope)[c] * value);
      sum += floats(dy)[i] * value * value * s * (1 - s);
    }
    write(mutable_floats(dslope.sums)[c], sum, dslope.write);
  }
}

ebb::Cost cost_of(ebb::Tensor x, int flops, int passes) {
  return {.flops = static_cast<double>(x.num_elements()) * flops,
          .bytes = static_cast<double>(x.bytes()) * passes,
          .name = "swish"};
}

}  // namespace

ebb::Variable swish(ebb::Tape& tape, ebb::Variable x, ebb::ParameterId slope) {
  tape.begin_call("swish", {{slope}});
  const ebb::Variable y = tape.output(x.value.shape, x.value.dtype);
  // Tensors are views: the closures of the stream copy them, and the memory stays valid until its
  // last reader is done.
  tape.end_call(
      [x, y](const ebb::Forward& f) {
        f.stream().submit(cost_of(x.value, 5, 2),
                          [y = f.value(y), x = f.value(x), w = f.weight(0)] { forward(y, x, w); });
      },
      [x, y](const ebb::Backward& b) {
        const ebb::Tensor dy = b.gradient(y), values = b.value(x), w = b.weight(0);
        if (x.has_gradient()) {
          const ebb::GradientTarget dx = b.input_gradient(x);
          b.stream().submit(cost_of(values, 8, 3),
                            [dx, dy, values, w] { backward_input(dx, dy, values, w); });
        }
        const ebb::GradientTarget dw = b.weight_gradient(0);
        b.stream().submit(cost_of(values, 10, 2),
                          [dw, dy, values, w] { backward_slope(dw, dy, values, w); });
      });
  return y;
}
