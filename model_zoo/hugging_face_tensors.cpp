#include "model_zoo/hugging_face_tensors.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <optional>
#include <unordered_set>

#include "device/errors.h"

namespace ebb {
namespace {

constexpr uint64_t kComparedAtOnce = uint64_t{1} << 20;  // elements

/// One of the stored tensors that together are one parameter of the model.
struct Part {
  std::string_view name;
  int64_t rows;
};

/// The names of the parameters of an architecture in Hugging Face folders.
struct Naming {
  struct Fused {
    std::string_view ours;  // in the middle of a name
    std::vector<Part> parts;
  };
  std::string_view prefix = {};  // missing in Ebb's names and in older files
  std::vector<Fused> fused = {};
  std::vector<std::string_view> transposed = {};  // ends of names
  std::vector<std::pair<std::string_view, std::string_view>> old_ends =
      {};  // today's, then older ones
  std::vector<std::string_view> ignored_ends = {}, ignored_beginnings = {};
  std::vector<std::pair<std::string_view, std::string_view>> copies =
      {};  // of tied weights: which, whose
};

Naming naming_of(const Gpt2Config&) {
  return {.prefix = "transformer.",
          .transposed = {"attn.c_attn.weight", "attn.c_proj.weight", "mlp.c_fc.weight",
                         "mlp.c_proj.weight"},
          .ignored_ends = {".attn.bias", ".attn.masked_bias"},
          .copies = {{"lm_head.weight", "transformer.wte.weight"}}};
}

Naming naming_of(const LlamaConfig& c) {
  const int64_t kv = c.num_kv_heads * c.head_dim;
  Naming naming{.fused = {{"self_attn.qkv",
                           {{"self_attn.q_proj", c.query_channels()},
                            {"self_attn.k_proj", kv},
                            {"self_attn.v_proj", kv}}},
                          {"mlp.gate_up",
                           {{"mlp.gate_proj", c.mlp_channels}, {"mlp.up_proj", c.mlp_channels}}}},
                .ignored_ends = {".rotary_emb.inv_freq"}};
  if (c.tied_head) naming.copies = {{"lm_head.weight", "model.embed_tokens.weight"}};
  return naming;
}

Naming naming_of(const BertConfig& c) {
  return {
      .fused = {{"attention.self.qkv",
                 {{"attention.self.query", c.channels},
                  {"attention.self.key", c.channels},
                  {"attention.self.value", c.channels}}}},
      .old_ends = {{"LayerNorm.weight", "LayerNorm.gamma"}, {"LayerNorm.bias", "LayerNorm.beta"}},
      .ignored_ends = {".position_ids"},
      .ignored_beginnings = {"bert.pooler.", "cls.seq_relationship."},
      .copies = {{"cls.predictions.decoder.weight", "bert.embeddings.word_embeddings.weight"},
                 {"cls.predictions.decoder.bias", "cls.predictions.bias"}}};
}

Naming naming_of(const ModelConfig& config) {
  return std::visit([](const auto& c) { return naming_of(c); }, config);
}

void add_tensor(std::vector<MappedTensor>& tensors, const Naming& naming, const Parameters& all,
                ParameterId id, int64_t first_row, int64_t rows, const std::string& name) {
  const Shape& shape = all[id].shape;
  const bool transposed = std::any_of(naming.transposed.begin(), naming.transposed.end(),
                                      [&](std::string_view end) { return name.ends_with(end); });
  tensors.push_back({.parameter = id,
                     .first_row = first_row,
                     .num_rows = rows,
                     .num_columns = shape.rank() == 1 ? 1 : shape[1],
                     .is_vector = shape.rank() == 1,
                     .transposed = transposed,
                     .name = std::string(naming.prefix) + name});
}

/// Adds the parts of a parameter. Returns false if the parameter is a single tensor.
bool add_parts(std::vector<MappedTensor>& tensors, const Naming& naming, const Parameters& all,
               ParameterId id) {
  const std::string& name = all[id].name;
  for (const Naming::Fused& fused : naming.fused) {
    const size_t at = name.find(fused.ours);
    if (at == std::string::npos) continue;
    int64_t row = 0;
    for (const Part& part : fused.parts) {
      std::string there = name;
      there.replace(at, fused.ours.size(), part.name);
      add_tensor(tensors, naming, all, id, row, part.rows, there);
      row += part.rows;
    }
    EBB_CHECK(row == all[id].shape[0], "the parts of " + name + " are not all of its rows");
    return true;
  }
  return false;
}

/// The possible names of a tensor: today's name, the name without the prefix, and the older name.
std::vector<std::string> names_of(const Naming& naming, const std::string& name) {
  std::vector<std::string> names = {name};
  if (!naming.prefix.empty()) names.push_back(name.substr(naming.prefix.size()));
  for (const auto& [now, before] : naming.old_ends) {
    if (!name.ends_with(now)) continue;
    names.push_back(name.substr(0, name.size() - now.size()) + std::string(before));
  }
  return names;
}

std::string shape_text(const std::vector<uint64_t>& shape) {
  return fmt::format("[{}]", fmt::join(shape, ", "));
}

void check_stored(const MappedTensor& wanted, const LocatedTensor& found) {
  const StoredTensor& stored = *found.stored;
  if (is_weight_type(stored.type) && stored.shape == wanted.stored_shape()) return;
  throw FormatError(
      found.file->path(), stored.offset,
      fmt::format("tensor '{}' is {}, but the model that config.json describes has {} of F32, BF16 "
                  "or F16",
                  stored.name, describe(stored.type, stored.shape),
                  shape_text(wanted.stored_shape())));
}

bool is_ignored(const Naming& naming, const std::string& name) {
  return std::any_of(naming.ignored_ends.begin(), naming.ignored_ends.end(),
                     [&](std::string_view end) { return name.ends_with(end); }) ||
         std::any_of(naming.ignored_beginnings.begin(), naming.ignored_beginnings.end(),
                     [&](std::string_view beginning) { return name.starts_with(beginning); });
}

bool same_values(const LocatedTensor& a, const LocatedTensor& b) {
  if (a.stored->shape != b.stored->shape || !is_weight_type(a.stored->type)) return false;
  std::vector<float> x, y;
  const uint64_t count = a.stored->num_elements();
  for (uint64_t first = 0; first < count; first += kComparedAtOnce) {
    x.resize(std::min(kComparedAtOnce, count - first));
    y.resize(x.size());
    a.read_floats(first, x);
    b.read_floats(first, y);
    if (std::memcmp(x.data(), y.data(), x.size() * sizeof(float)) != 0) return false;
  }
  return true;
}

/// The tensor of which this tensor is a copy; null if it is no copy.
const LocatedTensor* original_of(const Naming& naming, const std::string& name,
                                 const SafetensorsFolder& folder) {
  for (const auto& [copy, original] : naming.copies) {
    if (name != copy) continue;
    for (const std::string& candidate : names_of(naming, std::string(original))) {
      if (const LocatedTensor* found = folder.find(candidate)) return found;
    }
  }
  return nullptr;
}

void check_rest(const Naming& naming, const SafetensorsFolder& folder,
                const std::unordered_set<std::string>& used) {
  for (const LocatedTensor& tensor : folder.tensors()) {
    const std::string& name = tensor.stored->name;
    if (used.contains(name) || is_ignored(naming, name)) continue;
    const LocatedTensor* original = original_of(naming, name, folder);
    if (original != nullptr && same_values(tensor, *original)) continue;
    throw FormatError(
        tensor.file->path(), tensor.stored->offset,
        original == nullptr
            ? fmt::format("tensor '{}' ({}) is no part of the model that config.json describes",
                          name, describe(tensor.stored->type, tensor.stored->shape))
            : fmt::format("tensor '{}' differs from '{}', but config.json says that they are one",
                          name, original->stored->name));
  }
}

}  // namespace

std::vector<uint64_t> MappedTensor::stored_shape() const {
  const auto rows = static_cast<uint64_t>(num_rows), columns = static_cast<uint64_t>(num_columns);
  if (is_vector) return {rows};
  return transposed ? std::vector{columns, rows} : std::vector{rows, columns};
}

std::vector<MappedTensor> map_tensors(const ModelConfig& config, const Parameters& parameters) {
  const Naming naming = naming_of(config);
  std::vector<MappedTensor> tensors;
  for (ParameterId id = 0; id < parameters.size(); ++id) {
    if (add_parts(tensors, naming, parameters, id)) continue;
    add_tensor(tensors, naming, parameters, id, 0, parameters[id].shape[0], parameters[id].name);
  }
  return tensors;
}

std::vector<MappedTensor> match_tensors(const ModelConfig& config, const Parameters& parameters,
                                        const SafetensorsFolder& folder) {
  const Naming naming = naming_of(config);
  std::vector<MappedTensor> tensors = map_tensors(config, parameters);
  std::unordered_set<std::string> used;
  for (MappedTensor& tensor : tensors) {
    const std::string wanted = tensor.name;
    const LocatedTensor* found = nullptr;
    for (const std::string& name : names_of(naming, wanted)) {
      if ((found = folder.find(name)) != nullptr) break;
    }
    if (found == nullptr) {
      throw ConfigError(fmt::format("'{}' has no tensor '{}' ({}), which the model needs",
                                    folder.path(), wanted, shape_text(tensor.stored_shape())));
    }
    check_stored(tensor, *found);
    tensor.name = found->stored->name;
    used.insert(tensor.name);
  }
  check_rest(naming, folder, used);
  return tensors;
}

}  // namespace ebb
