#include "tools/token_text.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "device/errors.h"
#include "tools/train_setup.h"

namespace ebb {
namespace {

using Json = nlohmann::json;

/// The folder of the tokenizer; empty: the tokens are bytes.
std::string folder_of(const TrainOptions& options, const ModelSource& source) {
  if (trains_tokenizer(options)) {
    throw ConfigError(fmt::format(
        "--tokenizer {}: a vocabulary is trained by `ebb train`; give the folder of a tokenizer",
        options.tokenizer));
  }
  if (!options.tokenizer.empty()) return tokenizer_folder(options.tokenizer);
  if (!source.tokenizer.empty() || source.reads_bytes()) return source.tokenizer;
  throw ConfigError(fmt::format(
      "--prompt and --chat need a tokenizer, and '{}', with a vocabulary of {}, has none: "
      "{}, or give --prompt-tokens",
      source.name, source.vocabulary(), tokenizer_advice(false)));
}

}  // namespace

TokenText::TokenText(TrainOptions& options) {
  const ModelSource source = model_source(options);
  const std::string folder = folder_of(options, source);
  if (folder.empty()) return;
  program_ = std::make_unique<TextProgram>();
  const Json about = program_->ask(
      "speak",
      {{"tokenizer", folder},
       {"flag", options.tokenizer.empty() ? "--model" : "--tokenizer"},
       {"chat_template", options.chat_template.empty() ? Json() : Json(options.chat_template)}});
  ends_ = about.at("ends").get<std::vector<int32_t>>();
  if (source.folder.empty()) {
    options.text.tokenizer = folder;
    options.text.vocabulary = about.at("vocabulary").get<int64_t>();
  }
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

}  // namespace ebb
