// Makes the tokens of a run whose data is text. Tokens are kept in the cache, so that a second run
// and a resumed run find them (tokenizing/prepared.py).
//
// Errors: ConfigError naming the flag; those of TextProgram; those of reading a model's folder.
#pragma once

#include <functional>

#include "tools/model_source.h"
#include "tools/train_options.h"

namespace ebb {

/// If --data or --eval-data is text and the tokens of the model are not bytes, makes their tokens.
/// The flags of `options` then name the files of tokens, labels and documents. With --tokenizer or
/// --chat-template, `options.text` then has the tokenizer; --tokenizer is read even if all data is
/// token files.
/// Returns false if `stop` returned true before that was done.
[[nodiscard]] bool tokenize_text(TrainOptions& options, const std::function<bool()>& stop);

}  // namespace ebb
