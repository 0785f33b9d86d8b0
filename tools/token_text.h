// The text of a model's tokens: bytes for models over bytes, otherwise with the model's tokenizer
// (text_program.h).
//
// One thread at a time. Errors: ConfigError if the model has no tokenizer, or if its chat template
// cannot be used; those of TextProgram.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "tools/model_source.h"
#include "tools/text_program.h"
#include "tools/train_options.h"

namespace ebb {

/// A message of a conversation.
struct ChatMessage {
  std::string role;  ///< "user" or "assistant"
  std::string content;
};

class TokenText {
 public:
  /// With the tokenizer of --tokenizer, or else that of the model of `options`. Sets options.text
  /// if the tokenizer replaces the vocabulary of a preset.
  explicit TokenText(TrainOptions& options);
  /// With the tokenizer of a model. `needs` begins the message if there is none: "--prompt needs".
  TokenText(const ModelSource& source, std::string_view needs);

  std::vector<int32_t> tokens_of(const std::string& text);
  /// The tokens of a conversation and of the begin of the next answer.
  std::vector<int32_t> tokens_of(const std::vector<ChatMessage>& messages);
  /// The text that is certain after this token: with a tokenizer, whole characters, so it may be
  /// empty; for a model over bytes, the byte.
  std::string text_of(int32_t token);
  /// The text that text_of() still holds back. The next token begins a new text.
  std::string rest();
  /// The tokens of the tokenizer and its chat template that end a text.
  const std::vector<int32_t>& ends() const { return ends_; }

 private:
  /// Returns the size of the vocabulary.
  int64_t start(const std::string& tokenizer, std::string_view flag,
                const std::string& chat_template);

  std::unique_ptr<TextProgram> program_;  // null: the tokens are bytes
  std::vector<int32_t> ends_;
};

/// All tokens that end a text: those of the model's folder, and those of `text`, if it is not null.
std::vector<int32_t> end_tokens(const ModelSource& source, const TokenText* text);

}  // namespace ebb
