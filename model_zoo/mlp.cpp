#include "model_zoo/mlp.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "autograd/primitives.h"

namespace ebb {

Mlp::Mlp(std::vector<int64_t> widths, int64_t micro_batch_size, DType dtype)
    : widths_(std::move(widths)), micro_batch_size_(micro_batch_size), dtype_(dtype) {
  if (widths_.size() < 2 ||
      std::any_of(widths_.begin(), widths_.end(), [](auto w) { return w < 1; }) ||
      micro_batch_size < 1) {
    throw ConfigError("an MLP needs features, classes and a micro-batch, each at least 1");
  }
  for (size_t i = 0; i + 1 < widths_.size(); ++i) {
    const int64_t in = widths_[i], out = widths_[i + 1];
    const float deviation = std::sqrt(2.0f / static_cast<float>(in));  // He et al. 2015
    layers_.push_back(
        {parameters_.add(fmt::format("layers.{}.weight", i), {out, in}, Init::normal(deviation)),
         parameters_.add(fmt::format("layers.{}.bias", i), {out}, Init::zeros())});
  }
}

std::vector<InputSpec> Mlp::inputs() const {
  return {{"x", {micro_batch_size_, widths_.front()}, dtype_},
          {"labels", {micro_batch_size_}, DType::I32}};
}

void Mlp::end(Tape& tape, std::span<const Tensor> inputs, Variable x) const {
  for (size_t i = 0; i < layers_.size(); ++i) {
    x = linear(tape, x, layers_[i].weight, layers_[i].bias);
    if (i + 1 < layers_.size()) x = activation(tape, x, Activation::Relu);
  }
  cross_entropy(tape, x, inputs[1]);
}

}  // namespace ebb
