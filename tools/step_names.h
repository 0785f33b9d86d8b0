// Names of what a step does, as reports and traces show them: operations and chunks with their
// layers (chunk/layer_name.h) and parameters. Pure.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "chunk/layer_name.h"
#include "chunk/layout.h"
#include "scheduler/plan/plan.h"
#include "scheduler/plan/traffic.h"

namespace ebb {

/// The bytes of a chunk that belong to one parameter, with the padding after it.
struct ParameterPart {
  ParameterId parameter = 0;
  uint64_t bytes = 0;
};

class StepNames {
 public:
  /// Keeps references: the plan, its trace and its layout must outlive it.
  StepNames(const Plan& plan, const Trace& trace, const Layout& layout);

  /// In the order of the chunk; the sum is its used bytes. Empty for activations.
  std::vector<ParameterPart> parts(ChunkId chunk) const;
  /// "h.3.mlp.c_fc.weight", "h.3.mlp.c_fc.weight to h.4.ln_1.bias". Empty for activations.
  std::string parameters_of(ChunkId chunk) const;
  /// "h.3", "h.3 to h.4". Empty for activations.
  std::string layers_of(ChunkId chunk) const;

  /// The layer of the call; of a move of activations, the layer of the call that used them last or
  /// that needs them. Empty for what belongs to no single layer.
  const std::string& layer_of_op(OpIndex op) const { return layers_[layer_of_op_[op]]; }
  /// "load weights 12 (h.3 to h.4)", "linear forward (h.3)", "norm".
  std::string op_name(OpIndex op) const;

  struct LayerTraffic {
    std::string layer = {};
    MovedBytes by_class[kNumTrafficClasses] = {};
    MovedBytes total() const;
  };
  /// In the order of the parameters. Activations of no known layer are in a layer "other". The sums
  /// are Plan::loaded_bytes and Plan::stored_bytes.
  std::vector<LayerTraffic> traffic_by_layer() const;

 private:
  /// The elements from here on, in the space of gradient sums, belong to this parameter.
  struct First {
    uint64_t element;
    ParameterId parameter;
  };
  using Layer = uint32_t;  // in layers_; 0 is no layer

  void find_parameters();
  void find_layers_of_ops();
  Layer layer_of_call(const Call& call) const;

  const Plan& plan_;
  const Trace& trace_;
  const Layout& layout_;
  std::vector<First> firsts_;
  std::vector<std::string> layers_ = {""};
  std::vector<Layer> layer_of_parameter_;
  std::vector<Layer> layer_of_op_;
};

}  // namespace ebb
