// The training state in a file: all planes of all parameters, in the order of first use, with a
// checksum for each piece. The content does not depend on chunks, budgets or tiers.
//
//   "EBBSTATE"                           8 bytes
//   version (1), length of the header    4 bytes each
//   XXH64 of the header, of the table    8 bytes each
//   header                               JSON: what StateFileHeader says
//   table                                from the next multiple of 8 on: XXH64 of each piece
//   planes                               from the next multiple of 4096 on, without gaps: for each
//                                        parameter in order, its planes in order
// Here a piece is 4 MiB of one plane of one parameter, or the rest of that plane. All numbers
// are little-endian; the seed of XXH64 is 0.
//
// Not thread-safe. Errors: those of InputFile and NewFile; FormatError with the offset.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "device/dtype.h"
#include "device/tensor.h"
#include "io/input_file.h"
#include "io/new_file.h"

namespace ebb {

struct StateFileHeader {
  struct Plane {
    std::string name;
    uint32_t bytes_per_group = 0;
    uint32_t elements_per_group = 1;
    bool operator==(const Plane&) const = default;
    /// The last group may be partial; it takes its full size.
    uint64_t bytes(uint64_t num_elements) const {
      return (num_elements + elements_per_group - 1) / elements_per_group * bytes_per_group;
    }
  };
  struct Parameter {
    std::string name;
    Shape shape;
    bool operator==(const Parameter&) const = default;
  };
  DType weight_type = DType::F32;
  std::vector<Plane> planes;
  std::vector<Parameter> parameters;        ///< in order of first use
  std::map<std::string, uint64_t> numbers;  ///< of the run, by name
  bool operator==(const StateFileHeader&) const = default;
};

/// The offsets of the planes in a file with this header.
class StateFilePlaces {
 public:
  explicit StateFilePlaces(const StateFileHeader& header);
  /// The same for a header that takes `header_bytes` in the file.
  StateFilePlaces(const StateFileHeader& header, uint64_t header_bytes);

  /// The offset of the first byte and the number of bytes of a plane of a parameter.
  uint64_t offset(size_t parameter, size_t plane) const { return at(parameter, plane).offset; }
  uint64_t bytes(size_t parameter, size_t plane) const { return at(parameter, plane).bytes; }
  /// The index of the first piece of a plane in the table.
  uint64_t first_piece(size_t parameter, size_t plane) const { return at(parameter, plane).piece; }
  uint64_t num_pieces() const { return num_pieces_; }
  uint64_t table_offset() const { return table_offset_; }
  uint64_t file_bytes() const { return file_bytes_; }

 private:
  struct Place {
    uint64_t offset, bytes, piece;
  };
  const Place& at(size_t parameter, size_t plane) const;

  size_t num_planes_;
  std::vector<Place> places_;
  uint64_t num_pieces_ = 0;
  uint64_t table_offset_ = 0;
  uint64_t file_bytes_ = 0;
};

class PassingPlane;

class StateFileWriter {
 public:
  /// Allocates all bytes on the disk. The file gets its final name in finish().
  StateFileWriter(const std::string& path, const StateFileHeader& header);
  ~StateFileWriter();

  /// Writes the next bytes of a plane of a parameter, from its first byte to its last. Planes may
  /// come in any order, but each is written to its end before the next.
  void write(size_t parameter, size_t plane, std::span<const std::byte> bytes);
  /// Syncs the file and renames it to its final name. REQUIRES: every plane was written to its end.
  void finish();

 private:
  std::string header_;
  StateFilePlaces places_;
  std::vector<uint64_t> table_;  // a checksum for each piece
  uint64_t num_pieces_written_ = 0;
  std::unique_ptr<PassingPlane> passing_;
  NewFile file_;
};

class StateFileReader {
 public:
  /// Reads and checks the file except for the planes.
  explicit StateFileReader(const std::string& path);
  ~StateFileReader();
  StateFileReader(const StateFileReader&) = delete;
  StateFileReader& operator=(const StateFileReader&) = delete;

  const std::string& path() const { return file_.path(); }
  const StateFileHeader& header() const { return header_; }
  /// Reads the next bytes of a plane of a parameter. A call for another plane, or after an error,
  /// begins at the first byte of the plane. The checksum is checked at the end of each piece.
  void read(size_t parameter, size_t plane, std::span<std::byte> into);

 private:
  void read_header();

  InputFile file_;
  StateFileHeader header_;
  std::unique_ptr<const StateFilePlaces> places_;
  std::vector<uint64_t> table_;
  std::unique_ptr<PassingPlane> passing_;
};

}  // namespace ebb
