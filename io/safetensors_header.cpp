#include "io/safetensors_header.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <iterator>
#include <nlohmann/json.hpp>
#include <optional>
#include <unordered_set>

#include "device/errors.h"
#include "io/foreign_content.h"
#include "io/json_text.h"
#include "io/watched_text.h"

namespace ebb {
namespace {

using Json = nlohmann::json;

constexpr uint64_t kLengthBytes = 8;
constexpr uint64_t kMaxHeaderBytes = 100'000'000;

/// Processes the JSON while it is parsed. A header may name a million tensors, so it is never
/// stored as a tree. Offsets of `tensors` count from the beginning of the data until
/// parse_safetensors() converts them.
class HeaderReader {
 public:
  struct Tensor : StoredTensor {
    uint64_t end = 0;
  };

  HeaderReader(const std::string& path, std::string_view text) : path_(path), text_(text) {}

  void read() {
    seen_ = text_.data();
    Json::sax_parse(WatchedText(text_.data(), &seen_),
                    WatchedText(text_.data() + text_.size(), &seen_), this);
  }

  std::map<std::string, std::string> metadata;
  std::vector<Tensor> tensors;

  // The interface of a SAX consumer of nlohmann::json.
  bool null() { refuse("null"); }
  bool boolean(bool) { refuse("a truth value"); }
  bool number_integer(int64_t value) { refuse(fmt::format("the negative number {}", value)); }
  bool number_float(double, const std::string& text) { refuse("the number " + text); }
  bool binary(Json::binary_t&) { refuse("binary"); }
  bool number_unsigned(uint64_t value);
  bool string(std::string& value);
  bool key(std::string& name);
  bool start_object(size_t);
  bool end_object();
  bool start_array(size_t);
  bool end_array();
  bool parse_error(size_t position, const std::string&, const Json::exception&) {
    throw FormatError(path_, kLengthBytes + position - (position > 0 ? 1 : 0),
                      "the header is not JSON from here on");
  }

 private:
  enum class In : uint8_t { Nothing, Header, Metadata, Tensor, Shape, Offsets };
  enum class Field : uint8_t { None, Type, Shape, Offsets };

  [[noreturn]] void fail(const std::string& what) const {
    throw FormatError(path_, kLengthBytes + static_cast<uint64_t>(seen_ - text_.data()), what);
  }
  [[noreturn]] void refuse(const std::string& value) const {
    fail(fmt::format("the header has {} where the format knows no such value{}", value,
                     tensors.empty() ? "" : ", in or after tensor '" + tensors.back().name + "'"));
  }
  void start_field(const std::string& name);

  const std::string& path_;
  std::string_view text_;
  const char* seen_ = nullptr;
  In in_ = In::Nothing;
  Field field_ = Field::None;
  std::unordered_set<std::string> names_;
  bool has_type_ = false, has_shape_ = false;
  std::vector<uint64_t> offsets_;
  std::optional<std::string> metadata_key_;
};

bool HeaderReader::start_object(size_t) {
  if (in_ == In::Nothing && names_.empty()) return in_ = In::Header, true;
  if (in_ == In::Header && metadata_key_) return in_ = In::Metadata, metadata_key_.reset(), true;
  if (in_ == In::Header) return in_ = In::Tensor, true;
  refuse("an object");
}

bool HeaderReader::key(std::string& name) {
  if (in_ == In::Tensor) return start_field(name), true;
  if (in_ == In::Metadata) {
    if (metadata.contains(name)) fail("the metadata has two entries '" + name + "'");
    metadata_key_ = name;
    return true;
  }
  if (!names_.insert(name).second) fail("the header has two entries '" + name + "'");
  if (name == "__metadata__") return metadata_key_ = name, true;
  tensors.emplace_back().name = name;
  has_type_ = has_shape_ = false;
  offsets_.clear();
  return true;
}

void HeaderReader::start_field(const std::string& name) {
  const bool again = (name == "dtype" && has_type_) || (name == "shape" && has_shape_) ||
                     (name == "data_offsets" && !offsets_.empty());
  if (again) fail(fmt::format("tensor '{}' has two entries '{}'", tensors.back().name, name));
  field_ = name == "dtype"          ? Field::Type
           : name == "shape"        ? Field::Shape
           : name == "data_offsets" ? Field::Offsets
                                    : Field::None;
  if (field_ == Field::None) {
    fail(fmt::format("tensor '{}' has an entry '{}', which the format does not know",
                     tensors.back().name, name));
  }
}

bool HeaderReader::string(std::string& value) {
  if (in_ == In::Metadata) return metadata[*metadata_key_] = value, true;
  if (in_ != In::Tensor || field_ != Field::Type) refuse("the text '" + value + "'");
  const auto type = find_stored_type(value);
  if (!type) {
    fail(fmt::format("tensor '{}' has the unknown dtype '{}'", tensors.back().name, value));
  }
  tensors.back().type = *type;
  has_type_ = true;
  return true;
}

bool HeaderReader::start_array(size_t) {
  if (in_ != In::Tensor || field_ == Field::Type) refuse("a list");
  in_ = field_ == Field::Shape ? In::Shape : In::Offsets;
  return true;
}

bool HeaderReader::number_unsigned(uint64_t value) {
  if (in_ != In::Shape && in_ != In::Offsets) refuse(fmt::format("the number {}", value));
  (in_ == In::Shape ? tensors.back().shape : offsets_).push_back(value);
  return true;
}

bool HeaderReader::end_array() {
  has_shape_ = has_shape_ || in_ == In::Shape;
  if (in_ == In::Offsets && offsets_.size() != 2) {
    fail(fmt::format("tensor '{}' has {} data_offsets instead of 2", tensors.back().name,
                     offsets_.size()));
  }
  in_ = In::Tensor;
  return true;
}

bool HeaderReader::end_object() {
  if (in_ == In::Tensor) {
    if (!has_type_ || !has_shape_ || offsets_.empty()) {
      fail(fmt::format("tensor '{}' lacks its dtype, shape or data_offsets", tensors.back().name));
    }
    tensors.back().offset = offsets_[0];
    tensors.back().end = offsets_[1];
  }
  metadata_key_.reset();
  in_ = in_ == In::Header ? In::Nothing : In::Header;
  return true;
}

/// The bytes of a tensor with this type and shape; nullopt if the number exceeds 64 bits.
std::optional<uint64_t> checked_bytes(const TensorSpec& tensor) {
  uint64_t bytes = size_of(tensor.type);
  bool overflow = false;
  for (const uint64_t size : tensor.shape) {
    if (size == 0) return 0;
    overflow = __builtin_mul_overflow(bytes, size, &bytes) || overflow;
  }
  return overflow ? std::nullopt : std::optional(bytes);
}

void check_extent(const std::string& path, const HeaderReader::Tensor& t, uint64_t data_offset,
                  uint64_t data_bytes) {
  const std::string place =
      fmt::format("tensor '{}' with data_offsets [{}, {}]", t.name, t.offset, t.end);
  if (t.offset > t.end) throw FormatError(path, data_offset, place + " ends before it begins");
  if (t.end > data_bytes) {
    throw FormatError(path, data_offset + data_bytes,
                      fmt::format("{} lies beyond the {} bytes of data that the file has: it was "
                                  "cut short, or its header is wrong",
                                  place, data_bytes));
  }
  const auto bytes = checked_bytes(t);
  if (bytes == t.end - t.offset) return;
  throw FormatError(
      path, data_offset + t.offset,
      fmt::format("{} has {} bytes, but {} takes {}", place, t.end - t.offset,
                  describe(t.type, t.shape), bytes ? fmt::to_string(*bytes) : "more than 2^64"));
}

/// Sorts the tensors by offset and checks that they have no overlaps or holes.
void check_cover(const std::string& path, std::vector<HeaderReader::Tensor>& tensors,
                 uint64_t data_offset, uint64_t data_bytes) {
  std::stable_sort(tensors.begin(), tensors.end(), [](const auto& a, const auto& b) {
    return std::pair(a.offset, a.end) < std::pair(b.offset, b.end);
  });
  uint64_t end = 0;
  std::string before = "the header";
  for (const HeaderReader::Tensor& t : tensors) {
    if (t.offset < end) {
      throw FormatError(path, data_offset + t.offset,
                        fmt::format("tensor '{}' overlaps {}", t.name, before));
    }
    if (t.offset > end) {
      throw FormatError(path, data_offset + end,
                        fmt::format("{} bytes between {} and tensor '{}' belong to no tensor",
                                    t.offset - end, before, t.name));
    }
    end = t.end;
    before = "tensor '" + t.name + "'";
  }
  if (end == data_bytes) return;
  throw FormatError(
      path, data_offset + end,
      fmt::format("{} bytes behind {} belong to no tensor", data_bytes - end, before));
}

}  // namespace

uint64_t safetensors_header_bytes(const std::string& path, std::span<const std::byte> beginning,
                                  uint64_t file_bytes) {
  if (file_bytes == 0) throw FormatError(path, 0, "the file is empty: download or write it again");
  if (file_bytes < kLengthBytes) {
    throw FormatError(path, file_bytes,
                      "the file ends within the 8 bytes of its header's length: it is not "
                      "safetensors, or was cut short");
  }
  uint64_t length;
  std::memcpy(&length, beginning.data(), sizeof length);  // little-endian
  if (length > kMaxHeaderBytes) {
    const std::string what = foreign_content(beginning);
    throw FormatError(path, 0,
                      fmt::format("a header of {} bytes, where the format allows {}: this is not "
                                  "safetensors{}{}",
                                  length, kMaxHeaderBytes, what.empty() ? "" : ", but ", what));
  }
  if (length > file_bytes - kLengthBytes) {
    throw FormatError(path, file_bytes,
                      fmt::format("the file has {} bytes, less than its header of {}: it was cut "
                                  "short",
                                  file_bytes, length));
  }
  return kLengthBytes + length;
}

SafetensorsHeader parse_safetensors(const std::string& path, std::span<const std::byte> beginning,
                                    uint64_t file_bytes) {
  const uint64_t data_offset = safetensors_header_bytes(path, beginning, file_bytes);
  const std::string_view text(reinterpret_cast<const char*>(beginning.data()) + kLengthBytes,
                              data_offset - kLengthBytes);
  HeaderReader reader(path, text);
  reader.read();
  const uint64_t data_bytes = file_bytes - data_offset;
  for (const auto& tensor : reader.tensors) check_extent(path, tensor, data_offset, data_bytes);
  check_cover(path, reader.tensors, data_offset, data_bytes);
  SafetensorsHeader header{.metadata = std::move(reader.metadata), .tensors = {}};
  header.tensors.reserve(reader.tensors.size());
  for (auto& tensor : reader.tensors) {
    tensor.offset += data_offset;
    header.tensors.push_back(std::move(tensor));
  }
  return header;
}

std::string make_safetensors_header(const SafetensorsHeader& header) {
  std::string text = "{";
  const auto out = std::back_inserter(text);
  if (!header.metadata.empty()) {
    fmt::format_to(out, "\"__metadata__\":{}", json_text(Json(header.metadata)));
  }
  for (const StoredTensor& t : header.tensors) {
    fmt::format_to(out, "{}{}:{{\"dtype\":\"{}\",\"shape\":{},\"data_offsets\":[{},{}]}}",
                   text.size() > 1 ? "," : "", json_text(Json(t.name)), name_of(t.type),
                   json_text(Json(t.shape)), t.offset, t.offset + t.bytes());
  }
  text += "}";
  text.resize((text.size() + 7) / 8 * 8, ' ');
  EBB_CHECK(text.size() <= kMaxHeaderBytes, "more tensors than one file's header can name");
  const uint64_t length = text.size();
  return std::string(reinterpret_cast<const char*>(&length), sizeof length) + text;
}

}  // namespace ebb
