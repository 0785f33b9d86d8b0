// The header of a safetensors file: eight bytes of length, JSON that names every tensor's type,
// shape and place, then their data.
//
// Format: https://github.com/huggingface/safetensors. As there, a header has at most 100,000,000
// bytes and the tensors cover the data without overlap or hole; beyond it, names that come twice
// and fields that the format does not have are refused. Pure functions. Errors: FormatError with
// the tensor's name and the offset in the file.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "io/stored_tensor.h"

namespace ebb {

struct SafetensorsHeader {
  std::map<std::string, std::string> metadata;
  std::vector<StoredTensor> tensors;  ///< in the order of their data
};

/// `file` is all of it; `path` is for messages.
SafetensorsHeader parse_safetensors(const std::string& path, std::span<const std::byte> file);

/// Length and JSON for tensors with these places, padded so that data begins at a multiple of 8.
/// REQUIRES: offsets count from the beginning of the data.
std::string make_safetensors_header(const SafetensorsHeader& header);

}  // namespace ebb
