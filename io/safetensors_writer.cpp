#include "io/safetensors_writer.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>
#include <unordered_set>

#include "device/errors.h"
#include "io/safetensors_header.h"

namespace ebb {
namespace {

constexpr size_t kConvertedAtOnce = 16384;  // elements

std::vector<size_t> file_order(const std::vector<TensorSpec>& tensors) {
  std::vector<size_t> order(tensors.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    const TensorSpec &x = tensors[a], &y = tensors[b];
    return x.type != y.type ? x.type > y.type : x.name < y.name;
  });
  return order;
}

void check_distinct(const std::string& path, const std::vector<TensorSpec>& tensors) {
  std::unordered_set<std::string_view> names;
  for (const TensorSpec& tensor : tensors) {
    if (names.insert(tensor.name).second) continue;
    throw ConfigError(fmt::format("'{}': tensor '{}' is given twice", path, tensor.name));
  }
}

/// Rounds values. Returns the index of the first finite value that becomes infinite, or the number
/// of values if there is none.
template <class T>
size_t round_to(std::span<const float> values, T* out) {
  size_t bad = values.size();
  for (size_t i = 0; i < values.size(); ++i) {
    out[i] = T(values[i]);
    if (std::isinf(static_cast<float>(out[i])) && std::isfinite(values[i])) bad = std::min(bad, i);
  }
  return bad;
}

/// Rounds values in parts, and calls `take` with the index of the first value of each part and the
/// rounded values.
template <class T, class Take>
void for_rounded(std::span<const float> values, const std::string& tensor, const Take& take) {
  std::array<T, kConvertedAtOnce> rounded;
  for (size_t first = 0; first < values.size(); first += rounded.size()) {
    const auto part = values.subspan(first, std::min(values.size() - first, rounded.size()));
    if (const size_t bad = round_to(part, rounded.data()); bad < part.size()) {
      throw ConfigError(
          fmt::format("{:g} in tensor '{}' is too large for {}: try `save_dtype` fp32", part[bad],
                      tensor, name_of(dtype_of<T>())));
    }
    take(first, std::as_bytes(std::span(rounded).first(part.size())));
  }
}

}  // namespace

SafetensorsWriter::SafetensorsWriter(const std::string& path, std::vector<TensorSpec> tensors,
                                     std::map<std::string, std::string> metadata, FileUse use)
    : path_(path), tensors_(std::move(tensors)), offsets_(tensors_.size()) {
  check_distinct(path_, tensors_);
  SafetensorsHeader header{.metadata = std::move(metadata), .tensors = {}};
  for (const size_t i : file_order(tensors_)) {
    StoredTensor tensor;
    static_cast<TensorSpec&>(tensor) = tensors_[i];
    tensor.offset = offsets_[i] = data_bytes_;
    data_bytes_ += tensor.bytes();
    header.tensors.push_back(std::move(tensor));
  }
  const std::string text = make_safetensors_header(header);
  for (uint64_t& offset : offsets_) offset += text.size();
  file_.emplace(path, text.size() + data_bytes_, use);
  if (use == FileUse::Create) file_->write(0, std::as_bytes(std::span(text)));
}

void SafetensorsWriter::write_bytes(size_t tensor, uint64_t first,
                                    std::span<const std::byte> bytes) {
  const uint64_t size = tensors_.at(tensor).bytes();
  EBB_CHECK(first <= size && bytes.size() <= size - first,
            "written past tensor " + tensors_[tensor].name);
  file_->write(offsets_[tensor] + first, bytes);
  written_bytes_ += bytes.size();
}

void SafetensorsWriter::write_floats(size_t tensor, uint64_t first, std::span<const float> values) {
  const TensorSpec& spec = tensors_.at(tensor);
  EBB_CHECK(is_weight_type(spec.type) && spec.type != StoredType::F64,
            "floats are not written as " + describe(spec.type, {}));
  if (spec.type == StoredType::F32) {
    return write_bytes(tensor, first * sizeof(float), std::as_bytes(values));
  }
  const auto write = [&](size_t done, std::span<const std::byte> bytes) {
    write_bytes(tensor, (first + done) * sizeof(uint16_t), bytes);
  };
  if (spec.type == StoredType::BF16) return for_rounded<BF16>(values, spec.name, write);
  for_rounded<F16>(values, spec.name, write);
}

void SafetensorsWriter::finish(uint64_t by_others) {
  EBB_CHECK(written_bytes_ + by_others == data_bytes_,
            fmt::format("{} of {} bytes were written to '{}'", written_bytes_ + by_others,
                        data_bytes_, path_));
  file_->commit();
}

}  // namespace ebb
