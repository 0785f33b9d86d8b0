// What lies beside the weights in a Hugging Face folder.
#pragma once

#include <string>

#include "device/dtype.h"
#include "model_zoo/architecture.h"

namespace ebb {

/// Writes into the folder `to`: config.json, naming `dtype` as the type of the weights, and copies
/// of the generation settings and the tokenizer's files of the folder `from`. Where `from` is
/// empty, config.json alone, made from `config`. Every file is synced. Errors: IoError,
/// FormatError.
void write_model_files(const std::string& from, const ModelConfig& config, DType dtype,
                       const std::string& to);

/// The same files of any model, without its config.json.
void copy_companion_files(const std::string& from, const std::string& to);

}  // namespace ebb
