// Names of checkpoints and of their files, and which checkpoints a folder has. tools/checkpoint.h
// has the layout of such a folder.
//
// Errors: IoError; InputError if the folder does not exist. Functions have no state; they read
// folders.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace ebb {

inline constexpr const char* kStateFile = "state.ebb";
inline constexpr const char* kTrainingFile = "training.json";
inline constexpr const char* kConfigFile = "train.toml";

/// "step-12"
std::string checkpoint_name(uint64_t step);
/// Splits "step-12" and "step-12.anything" into the step and the text after it; nullopt for other
/// names.
std::optional<std::pair<uint64_t, std::string_view>> parse_checkpoint_name(std::string_view name);
/// Whether a name begins as those of checkpoints do.
bool is_checkpoint_name(std::string_view name);
/// "DIR/step-12"
std::string checkpoint_path(const std::string& folder, uint64_t step);
/// Steps of the complete checkpoints in a folder, ascending; empty if there is no folder.
std::vector<uint64_t> saved_steps(const std::string& folder);

/// Finds the checkpoint that a folder stands for in --resume and --model: `folder` itself, or the
/// newest checkpoint in it. Returns nullopt if the folder has no checkpoint; throws IoError if the
/// folder does not exist.
std::optional<std::string> find_checkpoint(const std::string& folder);

}  // namespace ebb
