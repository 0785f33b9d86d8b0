// What lies beside the weights in a Hugging Face folder.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "device/dtype.h"
#include "model_zoo/architecture.h"

namespace ebb {

/// Writes into the folder `to`: config.json, naming `dtype` as the type of the weights, and copies
/// of the generation settings and the tokenizer's files of the folder `from`. Where `from` is
/// empty, config.json alone, made from `config`. Every file is synced. Errors: IoError,
/// FormatError.
void write_model_files(const std::string& from, const ModelConfig& config, DType dtype,
                       const std::string& to);

/// The same from any model's folder; without a type, config.json as it is.
void copy_model_files(const std::string& from, std::optional<DType> dtype, const std::string& to);

/// Tokens that end a text, as generation_config.json of a folder names them, or where it does not
/// its config.json; none where neither does.
std::vector<int32_t> end_tokens(const std::string& folder);

}  // namespace ebb
