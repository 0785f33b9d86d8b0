#include "io/state_file.h"

#include <fmt/format.h>
#include <xxhash.h>

#include <algorithm>
#include <bit>
#include <nlohmann/json.hpp>
#include <utility>

#include "device/errors.h"
#include "io/json_text.h"

namespace ebb {

static_assert(std::endian::native == std::endian::little, "the file's numbers are little-endian");

namespace {

constexpr char kMagic[8] = {'E', 'B', 'B', 'S', 'T', 'A', 'T', 'E'};
constexpr uint32_t kVersion = 1;
constexpr uint64_t kPieceBytes = uint64_t{4} << 20;
constexpr uint64_t kPlaneAlignment = 4096;
constexpr uint32_t kMaxHeaderBytes = uint32_t{1} << 30;
// Limits far beyond any model. Sizes within these limits fit 64 bits.
constexpr uint64_t kMaxElements = uint64_t{1} << 50;
constexpr size_t kMaxPlanes = 64;
constexpr uint64_t kMaxGroup = 4096;
constexpr DType kWeightTypes[] = {DType::F32, DType::BF16, DType::F16};

struct Prologue {
  char magic[8];
  uint32_t version;
  uint32_t header_bytes;
  uint64_t header_hash;
  uint64_t table_hash;
};
static_assert(sizeof(Prologue) == 32);

uint64_t round_up(uint64_t value, uint64_t to) { return (value + to - 1) / to * to; }

uint64_t hash_of(std::span<const std::byte> bytes) { return XXH64(bytes.data(), bytes.size(), 0); }

uint64_t num_pieces_of(uint64_t bytes) { return (bytes + kPieceBytes - 1) / kPieceBytes; }

std::string to_json(const StateFileHeader& header) {
  nlohmann::ordered_json json;
  json["weight_type"] = name_of(header.weight_type);
  json["numbers"] = header.numbers;
  json["planes"] = nlohmann::ordered_json::array();
  for (const auto& plane : header.planes) {
    json["planes"].push_back({{"name", plane.name}, {"bytes", plane.bytes_per_group}});
    if (plane.elements_per_group > 1) json["planes"].back()["elements"] = plane.elements_per_group;
  }
  json["parameters"] = nlohmann::ordered_json::array();
  for (const auto& parameter : header.parameters) {
    std::vector<int64_t> shape;
    for (int i = 0; i < parameter.shape.rank(); ++i) shape.push_back(parameter.shape[i]);
    json["parameters"].push_back({{"name", parameter.name}, {"shape", shape}});
  }
  return json_text(json);
}

/// An error in the content of a header. Its text becomes part of a FormatError.
class BadHeader : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

uint64_t number(const nlohmann::json& json) {
  if (const auto value = whole_number(json)) return *value;
  throw BadHeader(json_text(json) + " where a whole number is needed");
}

Shape shape_of(const nlohmann::json& json) {
  if (!json.is_array()) throw BadHeader("a shape that is no list");
  std::vector<int64_t> dims;
  uint64_t count = 1;
  for (const auto& value : json) {
    const uint64_t dim = number(value);
    if (dim < 1 || dim > kMaxElements / count) throw BadHeader("an invalid shape");
    count *= dim;
    dims.push_back(static_cast<int64_t>(dim));
  }
  switch (dims.size()) {
    case 0:
      return {};
    case 1:
      return {dims[0]};
    case 2:
      return {dims[0], dims[1]};
    case 3:
      return {dims[0], dims[1], dims[2]};
    case 4:
      return {dims[0], dims[1], dims[2], dims[3]};
    default:
      throw BadHeader("a shape of more than four dimensions");
  }
}

StateFileHeader from_json(const std::string& text) {
  const auto json = parse_json(text);
  StateFileHeader header;
  const auto type = json.at("weight_type").get<std::string>();
  const auto* const known =
      std::ranges::find(kWeightTypes, type, [](DType t) { return name_of(t); });
  if (known == std::end(kWeightTypes)) throw BadHeader("weights of an unknown type " + type);
  header.weight_type = *known;
  for (const auto& [name, value] : json.at("numbers").items()) header.numbers[name] = number(value);
  for (const auto& plane : json.at("planes")) {
    const uint64_t bytes = number(plane.at("bytes"));
    const uint64_t elements = plane.contains("elements") ? number(plane.at("elements")) : 1;
    if (elements < 1 || elements > kMaxGroup) {
      throw BadHeader(fmt::format("a plane with groups of {} elements", elements));
    }
    if (bytes < 1 || bytes > 8 * elements)
      throw BadHeader(fmt::format("a plane with {} bytes for {} elements", bytes, elements));
    header.planes.push_back(
        {plane.at("name"), static_cast<uint32_t>(bytes), static_cast<uint32_t>(elements)});
  }
  uint64_t elements = 0;
  for (const auto& parameter : json.at("parameters")) {
    header.parameters.push_back({parameter.at("name"), shape_of(parameter.at("shape"))});
    elements += static_cast<uint64_t>(header.parameters.back().shape.num_elements());
    if (elements > kMaxElements) throw BadHeader("too many parameters");
  }
  if (header.planes.size() > kMaxPlanes) throw BadHeader("too many planes");
  return header;
}

}  // namespace

StateFilePlaces::StateFilePlaces(const StateFileHeader& header)
    : StateFilePlaces(header, to_json(header).size()) {}

StateFilePlaces::StateFilePlaces(const StateFileHeader& header, uint64_t header_bytes)
    : num_planes_(header.planes.size()) {
  uint64_t at = 0;
  for (const auto& parameter : header.parameters) {
    for (const auto& plane : header.planes) {
      const uint64_t bytes = plane.bytes(static_cast<uint64_t>(parameter.shape.num_elements()));
      places_.push_back({at, bytes, num_pieces_});
      at += bytes;
      num_pieces_ += num_pieces_of(bytes);
    }
  }
  table_offset_ = round_up(sizeof(Prologue) + header_bytes, sizeof(uint64_t));
  const uint64_t first = round_up(table_offset_ + num_pieces_ * sizeof(uint64_t), kPlaneAlignment);
  for (Place& place : places_) place.offset += first;
  file_bytes_ = first + at;
}

const StateFilePlaces::Place& StateFilePlaces::at(size_t parameter, size_t plane) const {
  const size_t index = parameter * num_planes_ + plane;
  EBB_CHECK(plane < num_planes_ && index < places_.size(), "the file has no such plane");
  return places_[index];
}

std::vector<StateFilePlaces::Piece> StateFilePlaces::pieces() const {
  std::vector<Piece> pieces;
  for (const Place& place : places_) {
    for (uint64_t at = 0; at < place.bytes; at += kPieceBytes) {
      pieces.push_back({place.offset + at, std::min(kPieceBytes, place.bytes - at)});
    }
  }
  return pieces;
}

class PassingHash {
 public:
  PassingHash() { reset(); }
  void reset() { XXH64_reset(state_.get(), 0); }
  void add(std::span<const std::byte> bytes) {
    XXH64_update(state_.get(), bytes.data(), bytes.size());
  }
  uint64_t digest() const { return XXH64_digest(state_.get()); }

 private:
  struct Free {
    void operator()(XXH64_state_t* state) const { XXH64_freeState(state); }
  };
  std::unique_ptr<XXH64_state_t, Free> state_{XXH64_createState()};
};

/// Follows the bytes of a plane that are read in order, and computes the checksum of each file
/// piece.
class PassingPlane {
 public:
  explicit PassingPlane(const StateFilePlaces& places) : places_(places) {}

  /// Starts at the first byte of a plane. take() of another plane starts at its first byte as well.
  void begin(size_t parameter, size_t plane) {
    parameter_ = parameter;
    plane_ = plane;
    at_ = 0;
  }
  /// Calls pass(offset in the file, bytes) for parts of `bytes`. At the end of each file piece it
  /// calls done(index in the table, offset, size, checksum).
  template <class Pass, class Done>
  void take(size_t parameter, size_t plane, std::span<std::byte> bytes, const Pass& pass,
            const Done& done) {
    if (parameter != parameter_ || plane != plane_) begin(parameter, plane);
    const uint64_t size = places_.bytes(parameter, plane);
    EBB_CHECK(bytes.size() <= size - at_, "a plane of another size");
    while (!bytes.empty()) {
      const uint64_t first = at_ / kPieceBytes * kPieceBytes;
      const uint64_t end = std::min(first + kPieceBytes, size);
      const auto part = bytes.first(std::min<uint64_t>(bytes.size(), end - at_));
      if (at_ == first) hash_.reset();
      pass(places_.offset(parameter, plane) + at_, part);
      hash_.add(part);
      at_ += part.size();
      bytes = bytes.subspan(part.size());
      if (at_ < end) continue;
      at_ %= size;
      done(places_.first_piece(parameter, plane) + first / kPieceBytes,
           places_.offset(parameter, plane) + first, end - first, hash_.digest());
    }
  }

 private:
  const StateFilePlaces& places_;
  size_t parameter_ = SIZE_MAX, plane_ = SIZE_MAX;
  uint64_t at_ = 0;
  PassingHash hash_;
};

StateFileWriter::StateFileWriter(const std::string& path, const StateFileHeader& header,
                                 FileUse use)
    : header_(to_json(header)),
      places_(header),
      passing_(std::make_unique<PassingHash>()),
      file_(path, places_.file_bytes(), use) {}

StateFileWriter::~StateFileWriter() = default;

void StateFileWriter::write(size_t parameter, size_t plane, uint64_t first,
                            std::span<const std::byte> bytes) {
  const uint64_t size = places_.bytes(parameter, plane);
  EBB_CHECK(first <= size && bytes.size() <= size - first, "a plane of another size");
  file_.write(places_.offset(parameter, plane) + first, bytes);
  while (!bytes.empty()) {
    const uint64_t piece = places_.first_piece(parameter, plane) + first / kPieceBytes;
    const uint64_t at = first % kPieceBytes;
    const auto part = bytes.first(std::min<uint64_t>(bytes.size(), kPieceBytes - at));
    const bool continues = !written_.empty() && written_.back().piece == piece &&
                           written_.back().first + written_.back().bytes == at;
    if (!continues) {
      if (!written_.empty()) written_.back().hash = passing_->digest();
      written_.push_back({.piece = piece, .first = at});
      passing_->reset();
    }
    passing_->add(part);
    written_.back().bytes += part.size();
    bytes = bytes.subspan(part.size());
    first += part.size();
  }
}

std::vector<WrittenRange> StateFileWriter::written() const {
  std::vector<WrittenRange> ranges = written_;
  if (!ranges.empty()) ranges.back().hash = passing_->digest();
  return ranges;
}

std::vector<uint64_t> StateFileWriter::table_of(std::vector<WrittenRange> ranges) const {
  std::ranges::sort(ranges, {}, [](const WrittenRange& r) { return std::pair(r.piece, r.first); });
  std::vector<uint64_t> table;
  size_t i = 0;
  for (const auto& [offset, bytes] : places_.pieces()) {
    const size_t begin = i;
    uint64_t end = 0;  // of what was written from the first byte of the piece on
    for (; i < ranges.size() && ranges[i].piece == table.size() && ranges[i].first == end; ++i) {
      end += ranges[i].bytes;
    }
    EBB_CHECK(end == bytes,
              fmt::format("the {} bytes at offset {} of '{}' were not all written, or "
                          "some of them twice: {} follow each other",
                          bytes, offset, file_.unfinished_path(), end));
    const auto parts = std::span(ranges).subspan(begin, i - begin);
    table.push_back(parts.size() == 1 ? parts[0].hash : hash_of_parts(offset, parts));
  }
  EBB_CHECK(i == ranges.size(), "bytes were written twice: " + file_.unfinished_path());
  return table;
}

/// Opens the file anew: then a network file system shows what other machines have synced.
uint64_t StateFileWriter::hash_of_parts(uint64_t offset,
                                        std::span<const WrittenRange> parts) const {
  const InputFile file(file_.unfinished_path(), "state");
  std::vector<std::byte> bytes;
  PassingHash whole;
  for (const WrittenRange& part : parts) {
    bytes.resize(part.bytes);
    file.read(offset + part.first, bytes);
    if (hash_of(bytes) != part.hash) {
      throw FormatError(
          file.path(), offset + part.first,
          fmt::format("{} bytes are not those that were written: does the file system show what "
                      "other machines write?",
                      part.bytes));
    }
    whole.add(bytes);
  }
  return whole.digest();
}

void StateFileWriter::finish(std::span<const WrittenRange> by_others) {
  std::vector<WrittenRange> ranges = written();
  ranges.insert(ranges.end(), by_others.begin(), by_others.end());
  const std::vector<uint64_t> checksums = table_of(std::move(ranges));
  const auto table = std::as_bytes(std::span(checksums));
  Prologue prologue = {.magic = {},
                       .version = kVersion,
                       .header_bytes = static_cast<uint32_t>(header_.size()),
                       .header_hash = hash_of(std::as_bytes(std::span(header_))),
                       .table_hash = hash_of(table)};
  std::ranges::copy(kMagic, prologue.magic);
  file_.write(0, std::as_bytes(std::span(&prologue, 1)));
  file_.write(sizeof prologue, std::as_bytes(std::span(header_)));
  file_.write(places_.table_offset(), table);
  file_.commit();
}

StateFileReader::StateFileReader(const std::string& path) : file_(path, "state") { read_header(); }

StateFileReader::~StateFileReader() = default;

void StateFileReader::read_header() {
  const uint64_t file_bytes = file_.size();
  const auto need = [&](uint64_t bytes) {
    if (file_bytes >= bytes) return;
    throw FormatError(path(), file_bytes,
                      fmt::format("the file ends too early: it should have {} bytes", bytes));
  };
  Prologue prologue;
  need(sizeof prologue);
  file_.read(0, std::as_writable_bytes(std::span(&prologue, 1)));
  if (!std::ranges::equal(prologue.magic, kMagic)) {
    throw FormatError(path(), 0, "this is not a training state of Ebb");
  }
  if (prologue.version != kVersion) {
    throw FormatError(path(), offsetof(Prologue, version),
                      fmt::format("version {} of the format; this program reads version {}",
                                  prologue.version, kVersion));
  }
  if (prologue.header_bytes > kMaxHeaderBytes) {
    throw FormatError(path(), offsetof(Prologue, header_bytes),
                      fmt::format("a header of {} bytes", prologue.header_bytes));
  }
  need(sizeof prologue + uint64_t{prologue.header_bytes});
  std::string text(prologue.header_bytes, ' ');
  file_.read(sizeof prologue, std::as_writable_bytes(std::span(text)));
  if (hash_of(std::as_bytes(std::span(text))) != prologue.header_hash) {
    throw FormatError(path(), sizeof prologue, "the header is damaged");
  }
  try {
    header_ = from_json(text);
  } catch (const nlohmann::json::exception& error) {
    throw FormatError(path(), sizeof prologue, error.what());
  } catch (const BadHeader& error) {
    throw FormatError(path(), sizeof prologue, error.what());
  }
  places_ = std::make_unique<const StateFilePlaces>(header_, prologue.header_bytes);
  if (places_->file_bytes() != file_bytes) {
    throw FormatError(
        path(), std::min(file_bytes, places_->file_bytes()),
        fmt::format("the file has {} bytes and should have {}", file_bytes, places_->file_bytes()));
  }
  table_.resize(places_->num_pieces());
  const auto table = std::as_writable_bytes(std::span(table_));
  file_.read(places_->table_offset(), table);
  if (hash_of(table) != prologue.table_hash) {
    throw FormatError(path(), places_->table_offset(), "the table of checksums is damaged");
  }
  passing_ = std::make_unique<PassingPlane>(*places_);
}

void StateFileReader::read(size_t parameter, size_t plane, std::span<std::byte> into) {
  const auto check = [&](uint64_t piece, uint64_t offset, uint64_t count, uint64_t hash) {
    if (hash == table_[piece]) return;
    throw FormatError(path(), offset,
                      fmt::format("{} bytes are damaged: of '{}', plane {}", count,
                                  header_.parameters[parameter].name, header_.planes[plane].name));
  };
  try {
    passing_->take(
        parameter, plane, into,
        [&](uint64_t offset, std::span<std::byte> part) { file_.read(offset, part); }, check);
  } catch (...) {
    passing_->begin(parameter, plane);
    throw;
  }
}

}  // namespace ebb
