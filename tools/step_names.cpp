#include "tools/step_names.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

namespace ebb {
namespace {

std::string first_to_last(const std::string& first, const std::string& last) {
  return first == last ? first : first + " to " + last;
}

}  // namespace

StepNames::StepNames(const Plan& plan, const Trace& trace, const Layout& layout)
    : plan_(plan), trace_(trace), layout_(layout) {
  find_parameters();
  find_layers_of_ops();
}

void StepNames::find_parameters() {
  layer_of_parameter_.assign(layout_.num_parameters(), 0);
  std::map<std::string, Layer> layers;
  for (const ParameterId id : layout_.call_order()) {
    const ParameterInfo& info = layout_.parameter(id);
    const auto [layer, is_new] =
        layers.emplace(layer_of(info.name), static_cast<Layer>(layers_.size()));
    if (is_new) layers_.push_back(layer->first);
    layer_of_parameter_[id] = layer->second;
    for (uint32_t group = 0; group < layout_.num_groups(); ++group) {
      for (uint32_t use = 0; use < info.num_uses; ++use) {
        firsts_.push_back({layout_.first_sum_element(id, use, group), id});
      }
    }
  }
  std::ranges::sort(firsts_, {}, &First::element);
}

StepNames::Layer StepNames::layer_of_call(const Call& call) const {
  const auto uses = trace_.uses_of(call);
  return uses.empty() ? 0 : layer_of_parameter_[uses.front().parameter];
}

void StepNames::find_layers_of_ops() {
  layer_of_op_.assign(plan_.ops.size(), 0);
  Layer now = 0;
  for (OpIndex i{0}; i < plan_.ops.size(); ++i) {
    const Op& op = plan_.ops[i];
    if (op.kind == OpKind::Call) {
      // Calls without parameters stand between calls of their layer.
      if (const Layer layer = layer_of_call(trace_.calls[op.call]); layer != 0) now = layer;
      layer_of_op_[i] = now;
    }
    for (const OpIndex w : plan_.waits_of(op)) {
      const Op& other = plan_.ops[w];
      const bool needs = op.kind == OpKind::Call && other.chunk.space == Space::Activations;
      if (needs && layer_of_op_[w] == 0) layer_of_op_[w] = now;
      const bool stores = op.stream == StreamKind::Store && op.chunk.space == Space::Activations;
      if (stores && other.kind == OpKind::Call) layer_of_op_[i] = layer_of_op_[w];
    }
  }
}

std::vector<ParameterPart> StepNames::parts(ChunkId chunk) const {
  std::vector<ParameterPart> parts;
  if (chunk.space == Space::Activations) return parts;
  const uint64_t size = size_of(layout_.type_of(chunk.space));
  uint64_t element = chunk.index * (layout_.chunk_bytes() / size);
  const uint64_t end = element + layout_.used_bytes(chunk) / size;
  auto next = std::ranges::upper_bound(firsts_, element, {}, &First::element);
  for (; element < end; ++next) {
    const uint64_t stop = next == firsts_.end() ? end : std::min(end, next->element);
    parts.push_back({std::prev(next)->parameter, (stop - element) * size});
    element = stop;
  }
  return parts;
}

std::string StepNames::parameters_of(ChunkId chunk) const {
  const std::vector<ParameterPart> all = parts(chunk);
  if (all.empty()) return "";
  const auto name = [this](const ParameterPart& p) { return layout_.parameter(p.parameter).name; };
  return first_to_last(name(all.front()), name(all.back()));
}

std::string StepNames::layers_of(ChunkId chunk) const {
  const std::vector<ParameterPart> all = parts(chunk);
  if (all.empty()) return "";
  const auto layer = [this](const ParameterPart& p) {
    return layers_[layer_of_parameter_[p.parameter]];
  };
  return first_to_last(layer(all.front()), layer(all.back()));
}

std::string StepNames::op_name(OpIndex index) const {
  const Op& op = plan_.ops[index];
  if (op.kind == OpKind::Norm) return "norm";
  std::string name, layers;
  if (op.kind == OpKind::Call) {
    const Call& call = trace_.calls[op.call];
    name = fmt::format("{} {}", call.name, name_of(call.phase));
  } else if (op.kind == OpKind::Move || op.kind == OpKind::Drop) {
    name = fmt::format("{} {} {}", name_of(op), name_of(op.chunk.space), op.chunk.index);
  } else {
    const bool speculates = op.kind == OpKind::Speculate;
    name =
        fmt::format("{} {}", speculates ? "speculative update" : name_of(op.kind), op.chunk.index);
  }
  const bool has_parameters = op.kind != OpKind::Call && op.chunk.space != Space::Activations;
  layers = has_parameters ? layers_of(op.chunk) : layer_of_op(index);
  return layers.empty() ? name : fmt::format("{} ({})", name, layers);
}

MovedBytes StepNames::LayerTraffic::total() const {
  MovedBytes sum;
  for (const MovedBytes& moved : by_class) sum += moved;
  return sum;
}

std::vector<StepNames::LayerTraffic> StepNames::traffic_by_layer() const {
  std::vector<LayerTraffic> all(layers_.size());
  for (size_t i = 0; i < all.size(); ++i) all[i].layer = layers_[i];
  for (OpIndex i{0}; i < plan_.ops.size(); ++i) {
    const Op& op = plan_.ops[i];
    if (moved_by(op, 0).is_empty()) continue;
    const auto add = [&](Layer layer, uint64_t used_bytes) {
      const uint64_t bytes = stores_sums(op) ? plan_.division.stored_bytes(used_bytes) : used_bytes;
      all[layer].by_class[static_cast<int>(class_of(op))] += moved_by(op, bytes);
    };
    const std::vector<ParameterPart> parameter_parts = parts(op.chunk);
    for (const ParameterPart& p : parameter_parts) add(layer_of_parameter_[p.parameter], p.bytes);
    if (parameter_parts.empty()) add(layer_of_op_[i], layout_.used_bytes(op.chunk));
  }
  all.front().layer = "other";
  std::ranges::rotate(all, all.begin() + 1);
  if (all.back().total().is_empty()) all.pop_back();
  return all;
}

}  // namespace ebb
