#include "tools/token_text.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "device/errors.h"
#include "model_zoo/model_files.h"
#include "tools/train_setup.h"

namespace ebb {
namespace {

using Json = nlohmann::json;

/// The folder of the model's tokenizer; empty: the tokens are bytes.
std::string folder_of(const ModelSource& source, std::string_view needs) {
  if (!source.tokenizer.empty() || source.reads_bytes()) return source.tokenizer;
  throw ConfigError(fmt::format("{} a tokenizer, and '{}', with a vocabulary of {}, has none: {}",
                                needs, source.name, source.vocabulary(), tokenizer_advice(false)));
}

}  // namespace

TokenText::TokenText(TrainOptions& options) {
  if (trains_tokenizer(options)) {
    throw ConfigError(fmt::format(
        "--tokenizer {}: a vocabulary is trained by `ebb train`; give the folder of a tokenizer",
        options.tokenizer));
  }
  const ModelSource source = model_source(options);
  const bool is_given = !options.tokenizer.empty();
  const std::string folder =
      is_given ? tokenizer_folder(options.tokenizer)
               : folder_of(source, "--prompt-tokens needs no tokenizer; --prompt and --chat need");
  if (folder.empty()) return;
  const int64_t vocabulary =
      start(folder, is_given ? "--tokenizer" : "--model", options.chat_template);
  if (is_given) check_tokenizer(source, options.tokenizer, vocabulary, is_given);
  if (source.folder.empty()) {
    options.text.tokenizer = folder;
    options.text.vocabulary = vocabulary;
  }
}

TokenText::TokenText(const ModelSource& source, std::string_view needs) {
  const std::string folder = folder_of(source, needs);
  if (!folder.empty()) start(folder, "--tokenizer", "");
}

int64_t TokenText::start(const std::string& tokenizer, std::string_view flag,
                         const std::string& chat_template) {
  program_ = std::make_unique<TextProgram>();
  const Json about = program_->ask(
      "speak", {{"tokenizer", tokenizer},
                {"flag", flag},
                {"chat_template", chat_template.empty() ? Json() : Json(chat_template)}});
  ends_ = about.at("ends").get<std::vector<int32_t>>();
  return about.at("vocabulary").get<int64_t>();
}

std::vector<int32_t> TokenText::tokens_of(const std::string& text) {
  if (program_) return program_->ask("encode", text).get<std::vector<int32_t>>();
  std::vector<int32_t> tokens;
  for (const char c : text) tokens.push_back(static_cast<unsigned char>(c));
  return tokens;
}

std::vector<int32_t> TokenText::tokens_of(const std::vector<ChatMessage>& messages) {
  if (!program_) {
    throw ConfigError(
        "--chat: a model over bytes has no chat template; continue a text with --prompt");
  }
  Json list = Json::array();
  for (const ChatMessage& message : messages) {
    list.push_back({{"role", message.role}, {"content", message.content}});
  }
  return program_->ask("chat", list).get<std::vector<int32_t>>();
}

std::string TokenText::text_of(int32_t token) {
  if (program_) return program_->ask("token", token).get<std::string>();
  return {static_cast<char>(token)};
}

std::string TokenText::rest() {
  return program_ ? program_->ask("end", nullptr).get<std::string>() : "";
}

std::vector<int32_t> end_tokens(const ModelSource& source, const TokenText* text) {
  std::vector<int32_t> ends;
  if (!source.folder.empty()) ends = end_tokens(source.folder);
  if (text != nullptr) ends.insert(ends.end(), text->ends().begin(), text->ends().end());
  return ends;
}

}  // namespace ebb
