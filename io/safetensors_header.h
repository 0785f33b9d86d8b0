// The header of a safetensors file: eight bytes of length, then JSON with the type, shape and
// offsets of every tensor. The data of the tensors follow the header.
//
// Format: https://github.com/huggingface/safetensors. As in that library, a header has at most
// 100,000,000 bytes, and the tensors cover the data without overlaps or holes. In addition,
// duplicate names and unknown fields are refused. Pure functions. Errors: FormatError with the
// tensor's name and the offset in the file.
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

/// The length in bytes of the header, including the eight bytes of its length. `beginning` contains
/// at least the first eight bytes of a file of `file_bytes`, or the whole file; `path` names the
/// file in messages.
uint64_t safetensors_header_bytes(const std::string& path, std::span<const std::byte> beginning,
                                  uint64_t file_bytes);

/// `beginning` contains at least the header of a file of `file_bytes`.
SafetensorsHeader parse_safetensors(const std::string& path, std::span<const std::byte> beginning,
                                    uint64_t file_bytes);

/// Returns the length and the JSON for tensors at these offsets, padded so that the data begin at a
/// multiple of 8. REQUIRES: offsets count from the beginning of the data.
std::string make_safetensors_header(const SafetensorsHeader& header);

}  // namespace ebb
