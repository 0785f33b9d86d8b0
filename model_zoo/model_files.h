// The files of a Hugging Face folder other than the weights. Functions have no state.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "device/dtype.h"
#include "model_zoo/architecture.h"

namespace ebb {

/// Opens config.json, the generation settings and the tokenizer files of a folder, so that a broken
/// link or a Git LFS pointer is found before a run and not when its first checkpoint is saved.
/// Errors: those of InputFile; InputError if a folder cannot be listed; ConfigError if there is no
/// config.json.
void check_model_files(const std::string& folder);

/// Writes to the folder `to` a config.json with `dtype` as the type of the weights, and copies of
/// the generation settings and tokenizer files of the folder `from`. If `from` is empty, writes
/// only a config.json, made from `config`. Every file is synced. Errors: those of InputFile, such
/// as InputError without a config.json, and NewFile; FormatError if config.json is not JSON, or if
/// a file is larger than 1 GiB. REQUIRES: `to` exists.
void write_model_files(const std::string& from, const ModelConfig& config, DType dtype,
                       const std::string& to);

/// The same from the folder of any model. Without a type, config.json is copied unchanged.
void copy_model_files(const std::string& from, std::optional<DType> dtype, const std::string& to);

/// Whether a folder has a file that only a tokenizer has.
bool has_tokenizer(const std::string& folder);
/// Replaces the generation settings and tokenizer files of the folder `to` by those of `from`. If
/// `from` is empty, only removes them. Errors: those of copy_model_files(); IoError if a file
/// cannot be removed.
void replace_companions(const std::string& from, const std::string& to);

/// The tokens that end a text: those of generation_config.json of a folder, otherwise those of its
/// config.json. A list in the first file hides the second, even if it is empty. Empty if
/// neither file names any. Errors: those of read_json_file(); ConfigError if
/// eos_token_id is neither a token nor a list of tokens.
std::vector<int32_t> end_tokens(const std::string& folder);

}  // namespace ebb
