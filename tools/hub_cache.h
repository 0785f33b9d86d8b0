// The local cache of the Hugging Face hub, in the folder that huggingface_hub uses.
//
// Errors: ConfigError that names the variable or the file, and what to give instead. Functions have
// no state; they read the environment and folders.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace ebb {

/// Whether the name has the form of the id of a model: name, or org/name.
bool is_hub_id(const std::string& name);

/// The folder of a model in the cache, whether or not it exists. The folder of the cache comes from
/// the first variable that is set: HF_HUB_CACHE, HUGGINGFACE_HUB_CACHE, HF_HOME, XDG_CACHE_HOME and
/// HOME. In their values, a leading ~ and $NAME or ${NAME} are expanded.
std::filesystem::path cached_model(const std::string& id);

/// The sorted ids of the models in the cache; empty if there is no cache.
std::vector<std::string> cached_ids();

/// Returns the folder of the snapshot of the branch "main" of a cached model; without a branch, the
/// only snapshot. nullopt if there is no snapshot. `name` is the value of --model, for messages.
std::optional<std::string> find_snapshot(const std::string& name,
                                         const std::filesystem::path& model);

}  // namespace ebb
