#include "tools/text_data.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <vector>

#include "device/errors.h"
#include "io/data_folder.h"
#include "tools/cli.h"
#include "tools/machine_rates.h"
#include "tools/text_program.h"
#include "tools/train_setup.h"

namespace ebb {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

/// The flags of one data set, which are changed.
struct TextFlags {
  std::string name;  ///< "--data"
  std::vector<std::string>& paths;
  std::string &labels, &documents;
};

bool is_token_file(const std::string& path) { return path.ends_with(".bin"); }

/// Whether a path is a token file or a folder that has one. Reading the data later reports a folder
/// that cannot be read.
bool has_tokens(const std::string& path) {
  std::error_code error;
  if (!fs::is_directory(path, error)) return is_token_file(path);
  try {
    return std::ranges::any_of(files_under(path).files, is_token_file);
  } catch (const Error&) {
    return true;
  }
}

bool exists(const std::string& path) {
  std::error_code error;
  return fs::exists(path, error);
}

bool is_text(const std::vector<std::string>& paths, TokenType type) {
  return type == TokenType::Auto && !paths.empty() && std::ranges::all_of(paths, exists) &&
         std::ranges::none_of(paths, has_tokens);
}

std::vector<TextFlags> text_sets(TrainOptions& o) {
  std::vector<TextFlags> sets;
  if (is_text(o.data, o.token_type)) sets.push_back({"--data", o.data, o.labels, o.documents});
  if (is_text(o.eval_data, o.token_type)) {
    sets.push_back({"--eval-data", o.eval_data, o.eval_labels, o.eval_documents});
  }
  return sets;
}

/// Labels and documents count tokens, and those of text are not known before they are made.
void refuse_annotations(const TextFlags& set) {
  for (const auto& [what, file] : {std::pair("labels", set.labels), {"documents", set.documents}}) {
    if (file.empty()) continue;
    std::string flag = set.name;
    flag.replace(flag.find("data"), 4, what);
    throw ConfigError(fmt::format(
        "{0} '{1}' belongs to token files, and {2} is text, whose {3} are made with its tokens: "
        "leave out {0}, or give {2} FILE.bin",
        flag, file, set.name, what));
  }
}

/// What the request calls the tokenizer. Throws if the model cannot have it.
std::string requested_tokenizer(const TrainOptions& o, const ModelSource& source) {
  if (o.tokenizer.empty()) return source.tokenizer;
  if (!trains_tokenizer(o)) return tokenizer_folder(o.tokenizer);
  if (!source.folder.empty()) {
    throw ConfigError(fmt::format(
        "--tokenizer {}: a new vocabulary is for presets, and the tokens of '{}' are those of its "
        "own vocabulary of {}: leave out --tokenizer, or give --tokenizer DIR",
        o.tokenizer, source.name, source.vocabulary()));
  }
  return o.tokenizer;
}

Json request_of(const TrainOptions& o, const ModelSource& source, const std::string& tokenizer,
                const std::vector<TextFlags>& sets) {
  const fs::path cache = cache_folder();
  if (cache.empty()) {
    throw ConfigError("there is no folder for the tokens of the text: set XDG_CACHE_HOME or HOME");
  }
  Json request = {{"tool", TextProgram::version()},
                  {"cache", cache.string()},
                  {"tokenizer", tokenizer},
                  {"flag", o.tokenizer.empty() ? "--model" : "--tokenizer"},
                  {"chat_template", o.chat_template.empty() ? Json() : Json(o.chat_template)},
                  {"length", batch_shape(o, source).length},
                  {"masked", !predicts_next_token(source.config)},
                  {"sets", Json::array()}};
  for (const TextFlags& set : sets) {
    request["sets"].push_back({{"flag", set.name}, {"paths", set.paths}});
  }
  return request;
}

std::string path_or_empty(const Json& paths, const char* kind) {
  const auto found = paths.find(kind);
  return found == paths.end() ? "" : found->get<std::string>();
}

/// Replaces text by its tokens, and says where they are.
void take_tokens(TextFlags set, const Json& made, TrainOptions::Text& text) {
  text.notices.push_back(fmt::format("{} is text: {} ({} '{}', which may be removed after the run)",
                                     set.name, made.at("summary").get<std::string>(),
                                     made.at("made") ? "kept in" : "found in",
                                     made.at("cache").get<std::string>()));
  for (const Json& notice : made.at("notices")) {
    text.notices.push_back(fmt::format("{}: {}", set.name, notice.get<std::string>()));
  }
  const Json& paths = made.at("paths");
  if (set.name == "--data") text.has_conversations = made.at("rows").get<bool>();
  set.paths = {path_or_empty(paths, "tokens")};
  set.labels = path_or_empty(paths, "labels");
  set.documents = path_or_empty(paths, "documents");
}

}  // namespace

bool tokenize_text(TrainOptions& options, const std::function<bool()>& stop) {
  std::vector<TextFlags> sets = text_sets(options);
  const bool has_flag = !options.tokenizer.empty();
  if (sets.empty() && !has_flag) return true;
  const ModelSource source = model_source(options);
  const std::string tokenizer = requested_tokenizer(options, source);
  if (tokenizer.empty()) return true;  // the tokens are bytes, or reading the data refuses the text
  for (const TextFlags& set : sets) refuse_annotations(set);
  const bool trains = trains_tokenizer(options);
  if (trains && (sets.empty() || sets.front().name != "--data")) {
    const auto missing = std::ranges::find_if_not(options.data, exists);
    if (missing != options.data.end()) throw InputError("cannot open data", *missing, ENOENT);
    throw ConfigError(
        fmt::format("--tokenizer {} trains a vocabulary on text, and --data is token files: give "
                    "--tokenizer DIR, the tokenizer with which they were made",
                    options.tokenizer));
  }
  const Json request = request_of(options, source, tokenizer, sets);
  try {
    TextProgram program(stop);
    const Json made = program.ask("prepare", request);
    const Json& found = made.at("tokenizer");
    if (has_flag || !options.chat_template.empty()) {
      options.text.tokenizer = found.at("folder").get<std::string>();
    }
    const auto vocabulary = found.at("vocabulary").get<int64_t>();
    check_tokenizer(source, has_flag ? options.tokenizer : tokenizer, vocabulary, has_flag);
    if (has_flag) options.text.vocabulary = vocabulary;
    for (size_t i = 0; i < sets.size(); ++i) {
      take_tokens(sets[i], made.at("sets").at(i), options.text);
    }
  } catch (const TextProgram::Stopped&) {
    return false;
  }
  return true;
}

}  // namespace ebb
