#include "io/safetensors.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "device/errors.h"
#include "io/safetensors_header.h"

namespace ebb {
namespace {

// Enough for the length of the header, and to recognise another format.
constexpr uint64_t kFirstBytes = 64;
// The bytes of a tensor that are converted at once.
constexpr uint64_t kReadBytes = uint64_t{4} << 20;

template <class T>
void widen(const std::byte* from, std::span<float> out) {
  for (size_t i = 0; i < out.size(); ++i) {
    T value;
    std::memcpy(&value, from + i * sizeof(T), sizeof(T));
    out[i] = static_cast<float>(value);
  }
}

/// Rounds F64. Returns the index of the first finite value that becomes infinite, or out.size().
size_t narrow(const std::byte* from, std::span<float> out) {
  size_t too_large = out.size();
  for (size_t i = 0; i < out.size(); ++i) {
    double value;
    std::memcpy(&value, from + i * sizeof value, sizeof value);
    out[i] = static_cast<float>(value);
    if (std::isinf(out[i]) && std::isfinite(value)) too_large = std::min(too_large, i);
  }
  return too_large;
}

/// Converts F64, BF16 or F16. Returns the index of the first finite value that fp32 cannot
/// represent, or out.size().
size_t to_floats(StoredType type, const std::byte* from, std::span<float> out) {
  if (type == StoredType::F64) return narrow(from, out);
  if (type == StoredType::BF16) {
    widen<BF16>(from, out);
  } else {
    widen<F16>(from, out);
  }
  return out.size();
}

SafetensorsHeader read_header(const InputFile& file) {
  std::vector<std::byte> beginning(std::min<uint64_t>(file.size(), kFirstBytes));
  file.read(0, beginning);
  beginning.resize(safetensors_header_bytes(file.path(), beginning, file.size()));
  file.read(0, beginning);
  return parse_safetensors(file.path(), beginning, file.size());
}

}  // namespace

SafetensorsFile::SafetensorsFile(const std::string& path) : file_(path, "weights") {
  SafetensorsHeader header = read_header(file_);
  metadata_ = std::move(header.metadata);
  tensors_ = std::move(header.tensors);
  for (size_t i = 0; i < tensors_.size(); ++i) by_name_.emplace(tensors_[i].name, i);
}

const StoredTensor* SafetensorsFile::find(std::string_view name) const {
  const auto at = by_name_.find(name);
  return at == by_name_.end() ? nullptr : &tensors_[at->second];
}

void SafetensorsFile::read_bytes(const StoredTensor& tensor, uint64_t first,
                                 std::span<std::byte> out) const {
  const uint64_t bytes = tensor.bytes();
  EBB_CHECK(first <= bytes && out.size() <= bytes - first, "read past tensor " + tensor.name);
  file_.read(tensor.offset + first, out);
}

void SafetensorsFile::read_floats(const StoredTensor& tensor, uint64_t first,
                                  std::span<float> out) const {
  if (!is_weight_type(tensor.type)) {
    throw ConfigError("'" + path() + "': tensor '" + tensor.name + "' is " +
                      describe(tensor.type, tensor.shape) +
                      ": weights are read from F64, F32, BF16 and F16");
  }
  const uint64_t elements = tensor.num_elements(), size = size_of(tensor.type);
  EBB_CHECK(first <= elements && out.size() <= elements - first, "read past " + tensor.name);
  if (tensor.type == StoredType::F32) {
    return file_.read(tensor.offset + first * size, std::as_writable_bytes(out));
  }
  const uint64_t at_once = kReadBytes / size;
  std::vector<std::byte> bytes(std::min<uint64_t>(at_once, out.size()) * size);
  for (uint64_t done = 0; done < out.size(); done += at_once) {
    const uint64_t count = std::min<uint64_t>(at_once, out.size() - done);
    const uint64_t offset = tensor.offset + (first + done) * size;
    const auto piece = std::span(bytes).first(count * size);
    file_.read(offset, piece);
    const size_t too_large = to_floats(tensor.type, piece.data(), out.subspan(done, count));
    if (too_large == count) continue;
    double value;
    std::memcpy(&value, piece.data() + too_large * size, sizeof value);
    throw FormatError(path(), offset + too_large * size,
                      fmt::format("{:g} in tensor '{}' is too large for fp32, in which Ebb "
                                  "computes: the largest value is 3.4e38",
                                  value, tensor.name));
  }
}

}  // namespace ebb
