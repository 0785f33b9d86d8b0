// The entry point of libFuzzer. It checks properties that hold for each header that the parser
// accepts.
//
// With clang: configure with CMAKE_CXX_COMPILER=clang++, build fuzz_safetensors and run
// `fuzz_safetensors -max_total_time=600 tests/io/fuzz_corpus`. Without clang fuzz_mutations.cpp
// runs the corpus and changed copies of its files.
#include <cstdio>
#include <cstdlib>

#include "device/errors.h"
#include "io/safetensors_header.h"

namespace {

void require(bool condition, const char* what) {
  if (condition) return;
  std::fprintf(stderr, "%s\n", what);
  std::abort();
}

/// The bytes of a shape of any size, exact up to 2^53.
double bytes_of(const ebb::TensorSpec& tensor) {
  auto bytes = static_cast<double>(size_of(tensor.type));
  for (const uint64_t size : tensor.shape) bytes *= static_cast<double>(size);
  return bytes;
}

/// The tensors must follow one another from the header to the end of the file.
void check_offsets(const ebb::SafetensorsHeader& header, size_t file_bytes) {
  uint64_t end = file_bytes;
  for (size_t i = header.tensors.size(); i-- > 0;) {
    const ebb::StoredTensor& tensor = header.tensors[i];
    require(tensor.offset <= end && tensor.offset + tensor.bytes() == end, "a hole or an overlap");
    require(bytes_of(tensor) == static_cast<double>(tensor.bytes()), "a shape beyond 64 bits");
    end = tensor.offset;
  }
  require(end >= 8, "data in the header");
}

/// A parsed header must be the same after it was written and parsed again.
void check_round_trip(ebb::SafetensorsHeader header, size_t file_bytes) {
  const uint64_t data = header.tensors.empty() ? file_bytes : header.tensors.front().offset;
  for (ebb::StoredTensor& tensor : header.tensors) tensor.offset -= data;
  std::string again = ebb::make_safetensors_header(header);
  const uint64_t shift = again.size();
  again.resize(shift + file_bytes - data);
  const auto second =
      ebb::parse_safetensors("again", std::as_bytes(std::span(again)), again.size());
  require(second.metadata == header.metadata, "other metadata");
  require(second.tensors.size() == header.tensors.size(), "other tensors");
  for (size_t i = 0; i < second.tensors.size(); ++i) {
    const ebb::StoredTensor &a = header.tensors[i], &b = second.tensors[i];
    require(
        a.name == b.name && a.type == b.type && a.shape == b.shape && a.offset + shift == b.offset,
        "another tensor");
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  try {
    const auto header = ebb::parse_safetensors("input", std::as_bytes(std::span(data, size)), size);
    check_offsets(header, size);
    check_round_trip(header, size);
  } catch (const ebb::FormatError& error) {
    require(error.offset <= size, "an offset behind the file's end");
  }
  return 0;
}
