#include "model_zoo/transformer.h"

namespace ebb {

WeightAndBias declare_projection(Parameters& parameters, const std::string& name, int64_t rows,
                                 int64_t columns, float standard_deviation) {
  const ParameterId weight =
      parameters.add(name + ".weight", {rows, columns}, Init::normal(standard_deviation));
  return {weight, parameters.add(name + ".bias", {rows}, Init::zeros())};
}

WeightAndBias declare_norm(Parameters& parameters, const std::string& name, int64_t channels) {
  const ParameterId weight = parameters.add(name + ".weight", {channels}, Init::ones());
  return {weight, parameters.add(name + ".bias", {channels}, Init::zeros())};
}

Variable linear(Tape& tape, Variable x, const WeightAndBias& projection) {
  return linear(tape, x, projection.weight, projection.bias);
}

namespace {

/// project(residual) = the projection + this residual. Without dropout, one kernel computes both.
template <class Project>
Variable add_dropped(Tape& tape, Variable residual, uint32_t site, const Project& project) {
  if (!tape.dropout_at(site, residual.value.dim(0))) return project(residual);
  return add(tape, residual, dropout(tape, project(std::nullopt), site));
}

}  // namespace

Variable add_projection(Tape& tape, Variable residual, Variable x, const WeightAndBias& projection,
                        uint32_t site) {
  return add_dropped(tape, residual, site, [&](std::optional<Variable> added) {
    return linear(tape, x, projection.weight, projection.bias, added);
  });
}

Variable add_projection(Tape& tape, Variable residual, const Activated& x,
                        const WeightAndBias& projection, uint32_t site) {
  return add_dropped(tape, residual, site, [&](std::optional<Variable> added) {
    return activation_linear(tape, x, projection.weight, projection.bias, added);
  });
}

Variable layer_norm(Tape& tape, Variable x, const WeightAndBias& norm, float epsilon) {
  return layer_norm(tape, x, norm.weight, norm.bias, epsilon);
}

std::vector<InputSpec> decoder_inputs(const MicroBatchShape& shape, DType dtype, int64_t num_layers,
                                      int64_t cache_channels) {
  const Shape tokens{shape.batch_size, shape.length};
  std::vector<InputSpec> specs = {{"tokens", tokens, DType::I32},
                                  {"positions", tokens, DType::I32},
                                  {"targets", tokens, DType::I32}};
  if (shape.packed) specs.push_back({"document_starts", tokens, DType::I32});
  if (shape.cache_length > 0) {
    const Shape cache{num_layers, shape.batch_size, shape.cache_length, cache_channels};
    specs.push_back({"cache", cache, dtype, true});
  }
  return specs;
}

Variable decoder_attention(Tape& tape, std::span<const Tensor> inputs, const MicroBatchShape& shape,
                           uint32_t layer, Variable qkv, AttentionShape heads, uint32_t site) {
  if (shape.cache_length > 0) {
    const Tensor& cache = inputs[3];
    const int64_t rows = shape.batch_size * shape.cache_length;
    const Tensor of_layer = cache.slice_rows(layer * rows, rows)
                                .reshape({shape.batch_size, shape.cache_length, cache.columns()});
    return attention(tape, qkv, heads, of_layer, inputs[1]);
  }
  heads.dropout = tape.dropout_at(site, shape.batch_size);
  if (shape.packed) heads.document_starts = inputs[3];
  return attention(tape, qkv, heads);
}

double transformer_flops(double matrix_elements, int64_t num_layers, int64_t channels,
                         int64_t num_seen, uint64_t tokens) {
  const double attention =
      2.0 * static_cast<double>(num_layers * channels) * static_cast<double>(num_seen);
  return 6 * (matrix_elements + attention) * static_cast<double>(tokens);
}

}  // namespace ebb
