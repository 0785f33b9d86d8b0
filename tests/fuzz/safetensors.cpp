// The header of a safetensors file.
#include <cstdint>
#include <cstring>

#include "fuzz/fuzz.h"
#include "io/safetensors_header.h"

namespace ebb::fuzz {
namespace {

SafetensorsHeader parse(Bytes file) { return parse_safetensors("input", file, file.size()); }

/// The bytes of a shape of any size, exact up to 2^53.
double size_in_bytes(const TensorSpec& tensor) {
  auto bytes = static_cast<double>(size_of(tensor.type));
  for (const uint64_t size : tensor.shape) bytes *= static_cast<double>(size);
  return bytes;
}

/// The tensors must follow one another from the header to the end of the file.
void check_offsets(const SafetensorsHeader& header, size_t file_bytes) {
  uint64_t end = file_bytes;
  for (size_t i = header.tensors.size(); i-- > 0;) {
    const StoredTensor& tensor = header.tensors[i];
    require(tensor.offset <= end && tensor.offset + tensor.bytes() == end, "no hole, no overlap");
    require(size_in_bytes(tensor) == static_cast<double>(tensor.bytes()), "sizes fit 64 bits");
    end = tensor.offset;
  }
  require(end >= 8, "the data follow the header");
}

/// A parsed header must be the same after it was written and parsed again.
void check_round_trip(SafetensorsHeader header, size_t file_bytes) {
  const uint64_t data = header.tensors.empty() ? file_bytes : header.tensors.front().offset;
  for (StoredTensor& tensor : header.tensors) tensor.offset -= data;
  std::string again = make_safetensors_header(header);
  const uint64_t shift = again.size();
  again.resize(shift + file_bytes - data);
  SafetensorsHeader second;
  must_accept([&] { second = parse(bytes_of(again)); });
  require(second.metadata == header.metadata, "the metadata is the same");
  require(second.tensors.size() == header.tensors.size(), "no tensor is lost");
  for (size_t i = 0; i < second.tensors.size(); ++i) {
    const StoredTensor &a = header.tensors[i], &b = second.tensors[i];
    const bool same = a.name == b.name && a.type == b.type && a.shape == b.shape;
    require(same && a.offset + shift == b.offset, "each tensor is the same");
  }
}

void check(Bytes file) {
  is_accepted([&] {
    try {
      const SafetensorsHeader header = parse(file);
      note_accepted();
      check_offsets(header, file.size());
      check_round_trip(header, file.size());
    } catch (const FormatError& error) {
      require(error.offset <= file.size(), "the offset of an error is in the file");
      throw;
    }
  });
}

}  // namespace

void test_input(Bytes input) {
  check(input);
  // With a wrong length most changed files would fail at the first check.
  std::string file = text_of(input);
  const size_t end = file.rfind('}');
  if (end == std::string::npos || end < 8) return;
  const uint64_t length = end + 1 - 8;
  std::memcpy(file.data(), &length, sizeof length);
  check(bytes_of(file));
}

}  // namespace ebb::fuzz
