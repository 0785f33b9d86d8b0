#include "io/safetensors.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <optional>

#include "device/errors.h"
#include "io/safetensors_header.h"

namespace ebb {
namespace {

// The bytes of a tensor that are read before their pages are released: enough for the disk to read
// ahead.
constexpr uint64_t kReadBytes = uint64_t{4} << 20;

template <class T>
void widen(const std::byte* from, std::span<float> out) {
  for (size_t i = 0; i < out.size(); ++i) {
    T value;
    std::memcpy(&value, from + i * sizeof(T), sizeof(T));  // a tensor may begin at an odd byte
    out[i] = static_cast<float>(value);
  }
}

/// Rounds F64. Returns the first finite value that becomes infinite.
std::optional<double> narrow(const std::byte* from, std::span<float> out) {
  std::optional<double> too_large;
  for (size_t i = 0; i < out.size(); ++i) {
    double value;
    std::memcpy(&value, from + i * sizeof value, sizeof value);
    out[i] = static_cast<float>(value);
    if (std::isinf(out[i]) && std::isfinite(value) && !too_large) too_large = value;
  }
  return too_large;
}

/// Returns the first finite value that fp32 cannot represent.
std::optional<double> to_floats(StoredType type, const std::byte* from, std::span<float> out) {
  if (type == StoredType::F64) return narrow(from, out);
  if (type == StoredType::F32) {
    std::memcpy(out.data(), from, out.size_bytes());
  } else if (type == StoredType::BF16) {
    widen<BF16>(from, out);
  } else {
    widen<F16>(from, out);
  }
  return std::nullopt;
}

}  // namespace

SafetensorsFile::SafetensorsFile(const std::string& path) : path_(path), file_(path, "weights") {
  SafetensorsHeader header = parse_safetensors(path_, file_.bytes());
  file_.release(0, file_.bytes().size());
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
  for (uint64_t done = 0; done < out.size(); done += kReadBytes) {
    const uint64_t count = std::min<uint64_t>(kReadBytes, out.size() - done);
    const uint64_t offset = tensor.offset + first + done;
    std::memcpy(out.data() + done, file_.bytes().data() + offset, count);
    file_.release(offset, count);
  }
}

void SafetensorsFile::read_floats(const StoredTensor& tensor, uint64_t first,
                                  std::span<float> out) const {
  if (!is_weight_type(tensor.type)) {
    throw ConfigError("'" + path_ + "': tensor '" + tensor.name + "' is " +
                      describe(tensor.type, tensor.shape) +
                      ": weights are read from F64, F32, BF16 and F16");
  }
  const uint64_t elements = tensor.num_elements(), size = size_of(tensor.type);
  EBB_CHECK(first <= elements && out.size() <= elements - first, "read past " + tensor.name);
  const uint64_t at_once = kReadBytes / size;
  for (uint64_t done = 0; done < out.size(); done += at_once) {
    const uint64_t count = std::min<uint64_t>(at_once, out.size() - done);
    const uint64_t offset = tensor.offset + (first + done) * size;
    const auto too_large =
        to_floats(tensor.type, file_.bytes().data() + offset, out.subspan(done, count));
    file_.release(offset, count * size);
    if (too_large) {
      throw FormatError(path_, offset,
                        fmt::format("{:g} in tensor '{}' is too large for fp32, in which Ebb "
                                    "computes: the largest value is 3.4e38",
                                    *too_large, tensor.name));
    }
  }
}

}  // namespace ebb
