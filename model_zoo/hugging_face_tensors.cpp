#include "model_zoo/hugging_face_tensors.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <unordered_set>

#include "device/errors.h"
#include "model_zoo/tensor_names.h"

namespace ebb {
namespace {

constexpr uint64_t kComparedAtOnce = uint64_t{1} << 20;  // elements

void add_tensor(std::vector<MappedTensor>& tensors, const TensorNaming& naming,
                const Parameters& all, ParameterId id, int64_t first_row, int64_t rows,
                const std::string& name) {
  const Shape& shape = all[id].shape;
  const bool transposed = std::any_of(naming.transposed.begin(), naming.transposed.end(),
                                      [&](std::string_view end) { return name.ends_with(end); });
  tensors.push_back({.parameter = id,
                     .first_row = first_row,
                     .num_rows = rows,
                     .num_columns = shape.rank() == 1 ? 1 : shape[1],
                     .is_vector = shape.rank() == 1,
                     .transposed = transposed,
                     .name = std::string(naming.added_prefix) + name});
}

/// Adds the parts of a parameter. Returns false if the parameter is a single tensor.
bool add_parts(std::vector<MappedTensor>& tensors, const TensorNaming& naming,
               const Parameters& all, ParameterId id) {
  const std::string& name = all[id].name;
  for (const TensorNaming::Fused& fused : naming.fused) {
    const size_t at = name.find(fused.ours);
    if (at == std::string::npos) continue;
    int64_t row = 0;
    for (const TensorPart& part : fused.parts) {
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

std::string shape_text(const std::vector<uint64_t>& shape) {
  return fmt::format("[{}]", fmt::join(shape, ", "));
}

void check_stored(const MappedTensor& wanted, const LocatedTensor& found) {
  const StoredTensor& stored = *found.stored;
  if (is_weight_type(stored.type) && stored.shape == wanted.stored_shape()) return;
  throw FormatError(
      found.file->path(), stored.offset,
      fmt::format("tensor '{}' is {}, but the model that config.json describes has {} of "
                  "F64, F32, BF16 or F16",
                  stored.name, describe(stored.type, stored.shape),
                  shape_text(wanted.stored_shape())));
}

/// The first of these names that the folder has; null if it has none.
const LocatedTensor* find_any(const SafetensorsFolder& folder,
                              const std::vector<std::string>& names) {
  for (const std::string& name : names) {
    if (const LocatedTensor* found = folder.find(name)) return found;
  }
  return nullptr;
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
const LocatedTensor* original_of(const TensorNaming& naming, const std::string& name,
                                 const SafetensorsFolder& folder) {
  for (const auto& [copy, original] : naming.copies) {
    if (name == copy) return find_any(folder, stored_names(naming, std::string(original)));
  }
  return nullptr;
}

/// The probable reason for an extra tensor, as the end of a message: a second tensor with the same
/// name up to a prefix.
std::string about_extra(const std::string& name, const std::unordered_set<std::string>& used) {
  for (const std::string& other : used) {
    if (!name.ends_with("." + other) && !other.ends_with("." + name)) continue;
    return fmt::format("; the folder also has '{}', which differs only in its prefix: remove one",
                       other);
  }
  return "";
}

void check_rest(const TensorNaming& naming, const SafetensorsFolder& folder,
                const std::unordered_set<std::string>& used) {
  for (const LocatedTensor& tensor : folder.tensors()) {
    const std::string& name = tensor.stored->name;
    if (used.contains(name) || is_ignored(naming, name)) continue;
    const LocatedTensor* original = original_of(naming, name, folder);
    if (original != nullptr && same_values(tensor, *original)) continue;
    throw FormatError(
        tensor.file->path(), tensor.stored->offset,
        original == nullptr
            ? fmt::format("tensor '{}' ({}) is no part of the model that config.json describes{}",
                          name, describe(tensor.stored->type, tensor.stored->shape),
                          about_extra(name, used))
            : fmt::format("tensor '{}' differs from '{}', but config.json says that they are one "
                          "(tie_word_embeddings)",
                          name, original->stored->name));
  }
}

/// The reason for a prefix that the model's names do not have, as the end of a message.
std::string about_prefix(const std::string& stored, std::string_view wanted) {
  const std::string prefix = stored.substr(0, stored.size() - wanted.size());
  const bool is_wrapper =
      prefix.find("_orig_mod.") != prefix.npos || prefix.find("module.") != prefix.npos;
  return fmt::format(
      "; it has '{}': {}; rename the tensors", stored,
      is_wrapper
          ? "torch.compile ('_orig_mod.') or DistributedDataParallel ('module.') add such a "
            "prefix; save the model inside"
          : fmt::format("no tensor of the model has the prefix '{}' before '{}'", prefix, wanted));
}

/// The same for a tensor of the folder whose name is one of `names` after a further prefix; empty
/// if there is none.
std::string about_wrapped(const SafetensorsFolder& folder, const std::vector<std::string>& names) {
  for (const LocatedTensor& tensor : folder.tensors()) {
    for (const std::string& name : names) {
      if (tensor.stored->name.ends_with("." + name)) return about_prefix(tensor.stored->name, name);
    }
  }
  return "";
}

/// The probable reason for missing tensors, as the end of a message.
std::string why_missing(const TensorNaming& naming, const SafetensorsFolder& folder,
                        std::span<const MappedTensor* const> missing,
                        const std::unordered_set<std::string>& used) {
  for (const MappedTensor* tensor : missing) {
    const std::string reason = about_wrapped(folder, stored_names(naming, tensor->name));
    if (!reason.empty()) return reason;
  }
  const bool only_head = std::ranges::all_of(
      missing, [&](const MappedTensor* tensor) { return is_in_head(naming, tensor->name); });
  if (only_head) {
    return fmt::format(
        "; this is the head of the model: the folder was saved from the base model without its "
        "head, and random values would take its place; save the model with its head{}",
        naming.copies.empty() ? ", or set tie_word_embeddings if the head is the embedding" : "");
  }
  for (const LocatedTensor& tensor : folder.tensors()) {
    const std::string& name = tensor.stored->name;
    if (used.contains(name) || is_ignored(naming, name)) continue;
    return fmt::format("; the model does not know the folder's tensor '{}'", name);
  }
  return "";
}

[[noreturn]] void throw_missing(const TensorNaming& naming, const SafetensorsFolder& folder,
                                std::span<const MappedTensor* const> missing,
                                const std::unordered_set<std::string>& used) {
  const std::string why =
      folder.notice().empty() ? why_missing(naming, folder, missing, used) : "; " + folder.notice();
  const MappedTensor& first = *missing.front();
  const std::string others =
      missing.size() == 1 ? "" : fmt::format(" (and {} more)", missing.size() - 1);
  throw ConfigError(fmt::format("'{}' has no tensor '{}' ({}), which the model needs{}{}",
                                folder.path(), first.name, shape_text(first.stored_shape()), others,
                                why));
}

}  // namespace

std::vector<uint64_t> MappedTensor::stored_shape() const {
  const auto rows = static_cast<uint64_t>(num_rows), columns = static_cast<uint64_t>(num_columns);
  if (is_vector) return {rows};
  return transposed ? std::vector{columns, rows} : std::vector{rows, columns};
}

std::vector<MappedTensor> map_tensors(const ModelConfig& config, const Parameters& parameters) {
  const TensorNaming naming = naming_of(config);
  std::vector<MappedTensor> tensors;
  for (ParameterId id = 0; id < parameters.size(); ++id) {
    if (add_parts(tensors, naming, parameters, id)) continue;
    add_tensor(tensors, naming, parameters, id, 0, parameters[id].shape[0], parameters[id].name);
  }
  return tensors;
}

std::vector<MappedTensor> match_tensors(const ModelConfig& config, const Parameters& parameters,
                                        const SafetensorsFolder& folder, bool is_base) {
  const TensorNaming naming = naming_of(config);
  std::vector<MappedTensor> tensors = map_tensors(config, parameters);
  std::unordered_set<std::string> used;
  std::vector<const MappedTensor*> missing;
  for (MappedTensor& tensor : tensors) {
    const LocatedTensor* found = find_any(folder, stored_names(naming, tensor.name));
    if (found == nullptr) {
      if (!is_base || !is_in_head(naming, tensor.name)) missing.push_back(&tensor);
      continue;
    }
    check_stored(tensor, *found);
    tensor.name = found->stored->name;
    used.insert(tensor.name);
  }
  if (!missing.empty()) throw_missing(naming, folder, missing, used);
  check_rest(naming, folder, used);
  return tensors;
}

std::vector<std::string> tensors_of_other_heads(const ModelConfig& config,
                                                const SafetensorsFolder& folder) {
  const TensorNaming naming = naming_of(config);
  std::vector<std::string> names;
  for (const LocatedTensor& tensor : folder.tensors()) {
    if (is_in_other_head(naming, tensor.stored->name)) names.push_back(tensor.stored->name);
  }
  return names;
}

}  // namespace ebb
