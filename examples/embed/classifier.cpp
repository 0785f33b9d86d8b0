#include "classifier.h"

#include "spirals.h"
#include "swish.h"

Classifier::Classifier(const ClassifierSizes& sizes) : sizes_(sizes) {
  const int64_t channels = sizes.channels;
  in_ = add_linear("in", channels, 2, 1.0f);
  for (uint32_t i = 0; i < sizes.num_layers; ++i) {
    const std::string name = "layer." + std::to_string(i);
    Layer layer;
    layer.linear = add_linear(name, channels, channels, 0.01f);
    layer.slope = parameters_.add(name + ".slope", {channels}, ebb::Init::ones());
    layers_.push_back(layer);
  }
  out_ = add_linear("out", kNumClasses, channels, 0.02f);
}

Classifier::Linear Classifier::add_linear(const std::string& name, int64_t outputs, int64_t inputs,
                                          float deviation) {
  return {parameters_.add(name + ".weight", {outputs, inputs}, ebb::Init::normal(deviation)),
          parameters_.add(name + ".bias", {outputs}, ebb::Init::zeros())};
}

std::vector<ebb::InputSpec> Classifier::inputs() const {
  return {{"points", {sizes_.batch, 2}, ebb::DType::F32},
          {"labels", {sizes_.batch}, ebb::DType::I32}};
}

ebb::Variable Classifier::begin(ebb::Tape& tape, std::span<const ebb::Tensor> inputs) const {
  const ebb::Variable points{.value = inputs[0]};  // an input: no gradient
  return ebb::linear(tape, points, in_.weight, in_.bias);
}

ebb::Variable Classifier::layer(ebb::Tape& tape, std::span<const ebb::Tensor>, uint32_t i,
                                ebb::Variable x) const {
  const Layer& layer = layers_[i];
  const ebb::Variable y = ebb::linear(tape, x, layer.linear.weight, layer.linear.bias);
  return ebb::add(tape, x, swish(tape, y, layer.slope));
}

void Classifier::end(ebb::Tape& tape, std::span<const ebb::Tensor> inputs, ebb::Variable x) const {
  x = ebb::linear(tape, x, out_.weight, out_.bias);
  ebb::cross_entropy(tape, x, inputs[1]);
}
