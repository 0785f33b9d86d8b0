#include "tools/output_paths.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <system_error>

#include "device/errors.h"
#include "io/data_folder.h"

namespace ebb {
namespace {

namespace fs = std::filesystem;

bool is_same_file(const std::string& a, const std::string& b) {
  std::error_code error;
  const fs::file_status status = fs::status(a, error);
  if (fs::exists(status)) {
    if (!fs::is_regular_file(status) && !fs::is_directory(status)) return false;
    return fs::equivalent(a, b, error) && !error;
  }
  const fs::path whole_a = fs::weakly_canonical(a, error);
  if (error) return false;
  const fs::path whole_b = fs::weakly_canonical(b, error);
  return !error && whole_a == whole_b;
}

bool is_folder(const std::string& path) {
  std::error_code error;
  return !path.empty() && fs::is_directory(path, error);
}

/// Whether a path is below a folder.
bool is_below(const std::string& folder, const std::string& path) {
  std::error_code error;
  const fs::path above = fs::weakly_canonical(folder, error);
  if (error) return false;
  const fs::path whole = fs::weakly_canonical(path, error);
  const auto [end, rest] = std::mismatch(above.begin(), above.end(), whole.begin(), whole.end());
  return !error && end == above.end() && rest != whole.end();
}

/// Whether a link in a folder leads to this file.
bool has_link_to(const std::string& folder, const std::string& path) {
  std::error_code error;
  if (!fs::is_regular_file(path, error)) return false;
  return std::ranges::any_of(files_under(folder).files, [&](const std::string& file) {
    std::error_code ignored;
    return fs::equivalent(file, path, ignored);
  });
}

/// Whether a model folder may have this file as an input. No file of a model has one of these ends.
bool may_be_of_model(const std::string& path) {
  std::error_code error;
  return fs::exists(path, error) && !path.ends_with(".jsonl") && !path.ends_with(".npy") &&
         !path.ends_with(".html");
}

/// Refuses an output that would change what is read from a folder: in a folder of data any file, in
/// other folders an existing file.
void refuse_in_folder(const FlagPath& output, const FlagPath& folder) {
  if (output.path.empty() || !is_folder(folder.path)) return;
  if (!is_below(folder.path, output.path) && !has_link_to(folder.path, output.path)) return;
  if (!folder.flag.ends_with("data") && !may_be_of_model(output.path)) return;
  throw ConfigError(fmt::format(
      "{} '{}' is in the folder of {} '{}', which is an input: give a path outside that folder",
      output.flag, output.path, folder.flag, folder.path));
}

}  // namespace

void refuse_same_files(const std::vector<FlagPath>& inputs, const std::vector<FlagPath>& outputs) {
  std::vector<FlagPath> others = inputs;
  for (const FlagPath& output : outputs) {
    if (output.path.empty()) continue;
    for (const FlagPath& input : inputs) refuse_in_folder(output, input);
    for (const FlagPath& other : others) {
      if (other.path.empty() || !is_same_file(output.path, other.path)) continue;
      throw ConfigError(
          fmt::format("{} '{}' would overwrite {} '{}': they are the same file; give another path",
                      output.flag, output.path, other.flag, other.path));
    }
    others.push_back(output);
  }
}

FlagPath config_path(const CommandLine& line) {
  for (const FlagValue& flag : line.given()) {
    if (flag.name == "config") return {"--config", flag.values.front()};
  }
  return {"--config", ""};
}

void refuse_same_files(const TrainOptions& o, const MorePaths& more) {
  std::vector<FlagPath> data;
  for (const std::string& path : o.data) data.push_back({"--data", path});
  for (const std::string& path : o.eval_data) data.push_back({"--eval-data", path});
  // A later run would read checkpoints in a folder of data as data.
  for (const FlagPath& folder : data) refuse_in_folder({"--save", o.save}, folder);
  std::vector<FlagPath> inputs = {{"--labels", o.labels},
                                  {"--documents", o.documents},
                                  {"--eval-labels", o.eval_labels},
                                  {"--eval-documents", o.eval_documents}};
  if (is_folder(o.model)) inputs.push_back({"--model", o.model});
  inputs.insert(inputs.end(), data.begin(), data.end());
  inputs.insert(inputs.end(), more.inputs.begin(), more.inputs.end());
  std::vector<FlagPath> outputs = {{"--log", o.log}, {"--trace", o.trace}};
  outputs.insert(outputs.end(), more.outputs.begin(), more.outputs.end());
  refuse_same_files(inputs, outputs);
}

}  // namespace ebb
