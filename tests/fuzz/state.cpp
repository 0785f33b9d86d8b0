// state.ebb of a checkpoint.
#include <xxhash.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <nlohmann/json.hpp>
#include <optional>
#include <vector>

#include "fuzz/fuzz.h"
#include "io/json_text.h"
#include "io/state_file.h"

namespace ebb::fuzz {
namespace {

// Places in the file, as state_file.h describes them.
constexpr size_t kHeaderLengthAt = 12, kHeaderHashAt = 16, kTableHashAt = 24, kHeaderAt = 32;
constexpr uint64_t kAlignment = 4096, kMostBytes = uint64_t{1} << 20;

template <class T>
void put(std::string& file, size_t at, T value) {
  std::memcpy(file.data() + at, &value, sizeof value);
}

uint64_t round_up(uint64_t value, uint64_t to) { return (value + to - 1) / to * to; }

/// A number of the header; 0 if it is not a whole number, and at most kMostBytes.
uint64_t number_of(const nlohmann::json& json) {
  return std::min(whole_number(json).value_or(0), kMostBytes);
}

/// The bytes of all planes that a header promises; at most kMostBytes.
uint64_t bytes_of_planes(const nlohmann::json& header) {
  uint64_t bytes = 0, elements = 0;
  for (const auto& plane : header.at("planes")) bytes += number_of(plane.at("bytes"));
  for (const auto& parameter : header.at("parameters")) {
    uint64_t count = 1;
    for (const auto& size : parameter.at("shape")) {
      count = std::min(count * number_of(size), kMostBytes);
    }
    elements = std::min(elements + count, kMostBytes);
  }
  return std::min(elements * std::min(bytes, kMostBytes), kMostBytes);
}

/// The file with the lengths and checksums that fit its header. With wrong ones most changed files
/// would fail at the first check. nullopt if the header is not one.
std::optional<std::string> repaired(std::string file) {
  if (file.size() < kHeaderAt) return std::nullopt;
  const size_t last = file.rfind('}', file.find('\0', kHeaderAt));
  if (last == std::string::npos || last < kHeaderAt) return std::nullopt;
  const std::string header = file.substr(kHeaderAt, last + 1 - kHeaderAt);
  uint64_t table_bytes = 0, plane_bytes = 0;
  try {
    const auto json = parse_json(header);
    // Each plane is one piece, because inputs are small.
    table_bytes = json.at("planes").size() * json.at("parameters").size() * sizeof(uint64_t);
    plane_bytes = bytes_of_planes(json);
  } catch (const nlohmann::json::exception&) {
    return std::nullopt;
  }
  const uint64_t table_at = round_up(kHeaderAt + header.size(), sizeof(uint64_t));
  file.resize(round_up(table_at + table_bytes, kAlignment) + plane_bytes);
  put(file, kHeaderLengthAt, static_cast<uint32_t>(header.size()));
  put(file, kHeaderHashAt, uint64_t{XXH64(header.data(), header.size(), 0)});
  put(file, kTableHashAt, uint64_t{XXH64(file.data() + table_at, table_bytes, 0)});
  return file;
}

/// Reads each plane in two parts. True if each has the bytes of its checksum.
bool read_planes(StateFileReader& reader) {
  const StateFileHeader& header = reader.header();
  std::vector<std::byte> bytes;
  bool all_read = true;
  for (size_t i = 0; i < header.parameters.size(); ++i) {
    for (size_t j = 0; j < header.planes.size(); ++j) {
      const auto elements = static_cast<uint64_t>(header.parameters[i].shape.num_elements());
      bytes.resize(header.planes[j].bytes(elements));
      const bool is_read = is_accepted([&] {
        const std::span<std::byte> all(bytes);
        reader.read(i, j, all.first(all.size() / 2));
        reader.read(i, j, all.subspan(all.size() / 2));
      });
      all_read = all_read && is_read;
    }
  }
  return all_read;
}

/// A header must be the same after it was written and read again.
void check_round_trip(const StateFileHeader& header) {
  must_accept([&] {
    const std::string path = folder() + "/again.ebb";
    StateFileWriter writer(path, header);
    for (size_t i = 0; i < header.parameters.size(); ++i) {
      for (size_t j = 0; j < header.planes.size(); ++j) {
        const auto elements = static_cast<uint64_t>(header.parameters[i].shape.num_elements());
        writer.write(i, j, 0, std::vector<std::byte>(header.planes[j].bytes(elements)));
      }
    }
    writer.finish();
    StateFileReader again(path);
    require(again.header() == header, "a header that was written is the same");
    require(read_planes(again), "planes that were written are read");
  });
}

void check(Bytes file) {
  const std::string path = write_file("state.ebb", file);
  is_accepted([&] {
    StateFileReader reader(path);
    if (read_planes(reader)) note_accepted();
    check_round_trip(reader.header());
  });
}

}  // namespace

void test_input(Bytes input) {
  check(input);
  if (const auto file = repaired(text_of(input))) check(bytes_of(*file));
}

}  // namespace ebb::fuzz
