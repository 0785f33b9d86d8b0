#include "tools/output_paths.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <system_error>

#include "device/errors.h"
#include "io/data_folder.h"
#include "io/new_file.h"
#include "io/token_record.h"
#include "tools/model_source.h"
#include "tools/saved_steps.h"

namespace ebb {
namespace {

namespace fs = std::filesystem;

/// The absolute path without links, also of a file that does not exist yet.
fs::path resolved(const std::string& path) {
  std::error_code error;
  const fs::path absolute = fs::absolute(destination_of(path), error);
  const fs::path whole = fs::weakly_canonical(absolute, error);
  return error ? absolute : whole;
}

bool is_same_file(const std::string& a, const std::string& b) {
  std::error_code error;
  const fs::file_status status = fs::status(a, error);
  if (fs::exists(status)) {
    if (!fs::is_regular_file(status) && !fs::is_directory(status)) return false;
    return fs::equivalent(a, b, error) && !error;
  }
  return resolved(a) == resolved(b);
}

bool is_folder(const std::string& path) {
  std::error_code error;
  return !path.empty() && fs::is_directory(path, error);
}

/// Whether a path is a folder or below it.
bool is_within(const fs::path& folder, const fs::path& path) {
  return std::mismatch(folder.begin(), folder.end(), path.begin(), path.end()).first ==
         folder.end();
}

/// Whether a path is within a folder, or within one to which a link in the folder leads.
bool is_below(const std::string& folder, const std::string& path) {
  const fs::path whole = resolved(path);
  if (is_within(resolved(folder), whole)) return true;
  std::error_code error;
  fs::recursive_directory_iterator entry(folder, error);
  for (; !error && entry != fs::recursive_directory_iterator(); entry.increment(error)) {
    std::error_code ignored;
    const bool is_link = entry->is_symlink(ignored) && entry->is_directory(ignored);
    if (is_link && is_within(resolved(entry->path().string()), whole)) return true;
  }
  return false;
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

/// The folder of a model; empty if there is none.
std::string model_folder(const std::string& name) {
  try {
    return name.empty() ? "" : find_model_folder(name);
  } catch (const ConfigError&) {  // the run will say why
    return "";
  }
}

/// Refuses an output that would change what is read from a folder: in a folder of data any file, in
/// other folders an existing file.
void refuse_in_folder(const FlagPath& output, const FlagPath& folder) {
  if (output.path.empty() || !is_folder(folder.path)) return;
  if (!is_below(folder.path, output.path) && !has_link_to(folder.path, output.path)) return;
  if (!folder.is_data && !may_be_of_model(output.path)) return;
  throw ConfigError(fmt::format(
      "{} '{}' is in the folder of {} '{}', which is an input: give a path outside that folder",
      output.flag, output.path, folder.flag, folder.path));
}

/// Refuses an output that would replace a file which is no earlier output of this kind.
void refuse_foreign(const FlagPath& output) {
  std::error_code error;
  const bool is_new = !fs::is_regular_file(output.path, error) || fs::file_size(output.path) == 0;
  if (output.begins.empty() || is_new) return;
  std::string beginning(output.begins.size(), ' ');
  std::ifstream(output.path, std::ios::binary)
      .read(beginning.data(), static_cast<std::streamsize>(beginning.size()));
  if (beginning == output.begins) return;
  throw ConfigError(
      fmt::format("{} '{}': there is a file that is no earlier output of this kind: remove it, or "
                  "give another path",
                  output.flag, output.path));
}

/// Refuses a file that has the name of the folder of --save or of a checkpoint in it.
void refuse_name_of_checkpoint(const FlagPath& output, const std::string& save) {
  if (save.empty() || output.path.empty()) return;
  const fs::path path = resolved(output.path), folder = resolved(save);
  const bool is_checkpoint =
      path.parent_path() == folder && is_checkpoint_name(path.filename().string());
  if (path != folder && !is_checkpoint) return;
  throw ConfigError(
      fmt::format("{} '{}' would take the name of --save or of a checkpoint in --save '{}': give "
                  "another path",
                  output.flag, output.path, save));
}

bool exists(const std::string& path) {
  std::error_code error;
  return fs::exists(path, error);
}

/// Refuses an output that would become the record of a data file that has no record.
void refuse_name_of_record(const FlagPath& output, const FlagPath& data) {
  if (output.path.empty()) return;
  for (const std::string& record : record_paths(data.path)) {
    if (exists(record) || !is_same_file(output.path, record)) continue;
    throw ConfigError(
        fmt::format("{} '{}' would be read as the record of the data '{}' by later runs; give "
                    "another path",
                    output.flag, output.path, data.path));
  }
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
  for (const FlagPath& output : outputs) refuse_foreign(output);
}

FlagPath config_path(const CommandLine& line) {
  for (const FlagValue& flag : line.given()) {
    if (flag.name == "config") return {"--config", flag.values.front()};
  }
  return {"--config", ""};
}

void refuse_same_files(const TrainOptions& o, const MorePaths& more) {
  std::vector<FlagPath> data;
  for (const std::string& path : o.data) data.push_back({"--data", path, "", true});
  for (const std::string& path : o.eval_data) data.push_back({"--eval-data", path, "", true});
  // A later run would read checkpoints in a folder of data as data.
  for (const FlagPath& folder : data) refuse_in_folder({"--save", o.save}, folder);
  std::vector<FlagPath> inputs = {{"--labels", o.labels},
                                  {"--documents", o.documents},
                                  {"--eval-labels", o.eval_labels},
                                  {"--eval-documents", o.eval_documents},
                                  {"--chat-template", o.chat_template}};
  if (const std::string model = model_folder(o.model); !model.empty()) {
    inputs.push_back({"--model", model});
  }
  for (const FlagPath& file : data) {
    for (const std::string& record : record_paths(file.path)) {
      if (exists(record)) inputs.push_back({"the record of the data", record});
    }
  }
  inputs.insert(inputs.end(), data.begin(), data.end());
  inputs.insert(inputs.end(), more.inputs.begin(), more.inputs.end());
  std::vector<FlagPath> outputs = {{"--log", o.log}, {"--trace", o.trace, "["}};
  outputs.insert(outputs.end(), more.outputs.begin(), more.outputs.end());
  for (const FlagPath& output : outputs) {
    refuse_name_of_checkpoint(output, o.save);
    for (const FlagPath& file : data) refuse_name_of_record(output, file);
  }
  refuse_same_files(inputs, outputs);
}

}  // namespace ebb
