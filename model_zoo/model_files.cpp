#include "model_zoo/model_files.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <system_error>

#include "device/errors.h"
#include "io/foreign_content.h"
#include "io/input_file.h"
#include "io/json_file.h"
#include "io/json_text.h"
#include "io/new_file.h"
#include "model_zoo/hugging_face_config.h"

namespace ebb {
namespace {

namespace fs = std::filesystem;

/// A file that belongs to a tokenizer or to the generation of text.
struct Companion {
  const char* name;
  bool is_tokenizer = false;  ///< this file alone has a vocabulary
};
constexpr Companion kCompanions[] = {{"generation_config.json"},
                                     {"tokenizer.json", true},
                                     {"tokenizer_config.json"},
                                     {"special_tokens_map.json"},
                                     {"added_tokens.json"},
                                     {"tokenizer.model", true},
                                     {"sentencepiece.bpe.model", true},
                                     {"spiece.model", true},
                                     {"spm.model", true},
                                     {"tekken.json", true},
                                     {"vocab.json", true},
                                     {"vocab.txt", true},
                                     {"merges.txt"},
                                     {"chat_template.jinja"},
                                     {"chat_template.json"}};
constexpr uint64_t kMostBytes = uint64_t{1} << 30;  // of one of these files
constexpr const char* kTemplates = "additional_chat_templates";

void copy_synced(const fs::path& from, const fs::path& to) {
  write_new_file(to.string(), read_input_file(from.string(), "model file", kMostBytes));
}

/// The names of the files in a folder; none if there is no such folder.
std::vector<std::string> names_in(const std::string& folder) {
  refuse_broken_link(folder);
  std::vector<std::string> names;
  std::error_code error;
  if (!fs::is_directory(folder, error)) return names;
  fs::directory_iterator entry(folder, error);
  for (; !error && entry != fs::directory_iterator(); entry.increment(error)) {
    std::error_code ignored;
    if (!entry->is_directory(ignored)) names.push_back(entry->path().filename().string());
  }
  if (error) throw InputError("cannot list folder", folder, error.value());
  return names;
}

/// The paths in the folder of the files that belong to the model, apart from config.json.
std::vector<std::string> companions_of(const std::string& folder) {
  std::vector<std::string> files;
  for (const Companion& file : kCompanions) {
    if (is_entry(fmt::format("{}/{}", folder, file.name))) files.emplace_back(file.name);
  }
  for (const std::string& name : names_in(fmt::format("{}/{}", folder, kTemplates))) {
    files.push_back(fmt::format("{}/{}", kTemplates, name));
  }
  return files;
}

void copy_companions(const std::string& from, const std::string& to) {
  for (const std::string& file : companions_of(from)) {
    const fs::path copy = fs::path(to) / file;
    create_folders(copy.parent_path().string());
    copy_synced(fs::path(from) / file, copy);
  }
}

}  // namespace

void check_model_files(const std::string& folder) {
  const std::string config = folder + "/config.json";
  if (!is_entry(config)) {
    throw ConfigError(fmt::format(
        "'{}' has no config.json: give the folder of a model that transformers or ebb saved",
        folder));
  }
  const InputFile opened_config(config, "JSON");
  for (const std::string& file : companions_of(folder)) {
    const InputFile opened(fmt::format("{}/{}", folder, file), "model file");
  }
}

void write_model_files(const std::string& from, const ModelConfig& config, DType dtype,
                       const std::string& to) {
  if (!from.empty()) return copy_model_files(from, dtype, to);
  write_new_file(to + "/config.json", make_config_json(config, dtype));
}

void copy_model_files(const std::string& from, std::optional<DType> dtype, const std::string& to) {
  if (dtype) {
    write_new_file(to + "/config.json", copy_config_json(from, *dtype));
  } else {
    copy_synced(from + "/config.json", to + "/config.json");
  }
  copy_companions(from, to);
}

bool has_tokenizer(const std::string& folder) {
  return std::ranges::any_of(kCompanions, [&](const Companion& file) {
    return file.is_tokenizer && is_entry(fmt::format("{}/{}", folder, file.name));
  });
}

void replace_companions(const std::string& from, const std::string& to) {
  for (const std::string& file : companions_of(to)) {
    const fs::path path = fs::path(to) / file;
    std::error_code error;
    fs::remove(path, error);
    if (error) throw IoError("cannot remove", path.string(), error.value());
  }
  if (!from.empty()) copy_companions(from, to);
}

std::vector<int32_t> end_tokens(const std::string& folder) {
  for (const char* name : {"generation_config.json", "config.json"}) {
    const fs::path path = fs::path(folder) / name;
    if (!is_entry(path.string())) continue;
    const nlohmann::json json = read_json_file(path.string());
    const auto found = json.find("eos_token_id");
    if (found == json.end() || found->is_null()) continue;
    const auto tokens = found->is_array() ? *found : nlohmann::json::array({*found});
    std::vector<int32_t> ends;
    for (const auto& token : tokens) {
      const auto number = whole_number(token);
      if (!number || *number > INT32_MAX) {
        throw ConfigError(
            fmt::format("'{}': eos_token_id is {}: allowed are a token or a list of "
                        "tokens, from 0 to 2147483647",
                        path.string(), json_text(*found)));
      }
      ends.push_back(static_cast<int32_t>(*number));
    }
    return ends;
  }
  return {};
}

}  // namespace ebb
