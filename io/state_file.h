// The training state in a file: all planes of all parameters, in the order of first use, with
// checksums. The content does not depend on chunks, budgets or tiers.
//
//   "EBBSTATE"                           8 bytes
//   version (1), bytes of the header     4 bytes each
//   XXH64 of the header, of the table    8 bytes each
//   header                               JSON: what StateFileHeader says
//   table                                from the next multiple of 8 on: XXH64 of each file piece
//   planes                               from the next multiple of 4096 on, without gaps: for each
//                                        parameter in order, its planes in order
// A file piece is 4 MiB of one plane of one parameter, or the rest of that plane; it is not the
// piece of the glossary. All numbers are little-endian; the seed of XXH64 is 0.
//
// Several processes may write one file together (FileUse). Each knows the checksums of what it has
// written itself. Of a file piece that several have written, the one that creates and finishes the
// file reads the bytes again, compares them with the checksums of the parts, and makes the checksum
// of the piece.
//
// Thread-safety: one thread at a time uses a writer or a reader. Errors: those of InputFile and
// NewFile; FormatError, which names the offset, if the file is damaged or has another version;
// LogicError if bytes are read or written beyond a plane.
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
  /// A plane is stored in groups of elements, as device/planes.h says.
  struct Plane {
    std::string name;
    uint32_t bytes_per_group = 0;
    uint32_t elements_per_group = 1;
    bool operator==(const Plane&) const = default;
    /// The bytes of so many elements. The last group may be partial; it takes its full size.
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
  std::vector<Parameter> parameters;  ///< in order of first use
  /// What the run must remember besides the planes, by name: the number of updates, for example.
  std::map<std::string, uint64_t> numbers;
  bool operator==(const StateFileHeader&) const = default;
};

/// Where the planes are in a file with this header. Parameters and planes have the indices that
/// they have in the header. Offsets count bytes from the beginning of the file. Immutable; another
/// index throws LogicError.
class StateFilePlaces {
 public:
  explicit StateFilePlaces(const StateFileHeader& header);
  /// For a file whose JSON has `header_bytes`. A reader needs this, because the JSON in a file may
  /// be formatted differently.
  StateFilePlaces(const StateFileHeader& header, uint64_t header_bytes);

  /// The offset of the first byte and the number of bytes of a plane of a parameter.
  uint64_t offset(size_t parameter, size_t plane) const { return at(parameter, plane).offset; }
  uint64_t bytes(size_t parameter, size_t plane) const { return at(parameter, plane).bytes; }
  /// The index in the table of the first file piece of a plane.
  uint64_t first_piece(size_t parameter, size_t plane) const { return at(parameter, plane).piece; }
  /// The number of file pieces, which is the number of entries of the table.
  uint64_t num_pieces() const { return num_pieces_; }
  /// Where a file piece is in the file.
  struct Piece {
    uint64_t offset, bytes;
  };
  /// All file pieces, in the order of the table.
  std::vector<Piece> pieces() const;
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

/// Consecutive bytes of a file piece that one process has written, and their XXH64. `first` counts
/// from the first byte of the piece.
struct WrittenRange {
  uint64_t piece = 0, first = 0, bytes = 0, hash = 0;
};

class PassingHash;   // of bytes that are written in order
class PassingPlane;  // the position in a plane that is being read

class StateFileWriter {
 public:
  /// Allocates all bytes on the disk, or joins a file of the same header that another process has
  /// created. The file gets its final name in finish().
  StateFileWriter(const std::string& path, const StateFileHeader& header,
                  FileUse use = FileUse::Create);
  ~StateFileWriter();

  /// Writes bytes [first, first + bytes.size()) of one plane of a parameter. REQUIRES: they exist.
  /// Calls that continue each other make one range of a file piece; others may come in any order.
  void write(size_t parameter, size_t plane, uint64_t first, std::span<const std::byte> bytes);
  /// What this object has written so far.
  std::vector<WrittenRange> written() const;
  /// As NewFile::sync().
  void sync(const std::function<void()>& progress) { file_.sync(progress); }
  /// Syncs the file and renames it to its final name. REQUIRES: called once; this object has
  /// created the file; other processes have synced `by_others`. Throws LogicError unless all
  /// together have written each byte once; FormatError if a part of a file piece that several have
  /// written is not in the file.
  void finish(std::span<const WrittenRange> by_others = {});

 private:
  /// Checks that `ranges` are all bytes of the planes, and returns the table of checksums.
  std::vector<uint64_t> table_of(std::vector<WrittenRange> ranges) const;
  uint64_t hash_of_parts(uint64_t offset, std::span<const WrittenRange> parts) const;

  std::string header_;
  StateFilePlaces places_;
  std::vector<WrittenRange> written_;  // the hash of the last one is in passing_
  std::unique_ptr<PassingHash> passing_;
  NewFile file_;
};

class StateFileReader {
 public:
  /// Reads and checks the header and the table. Reads no plane.
  explicit StateFileReader(const std::string& path);
  ~StateFileReader();
  StateFileReader(const StateFileReader&) = delete;
  StateFileReader& operator=(const StateFileReader&) = delete;

  const std::string& path() const { return file_.path(); }
  const StateFileHeader& header() const { return header_; }
  /// Reads the next bytes of a plane of a parameter. A call begins at the first byte of the plane
  /// if the call before it read another plane, read the plane to its end, or threw an error. Checks
  /// a checksum when the last byte of a file piece is read, and throws FormatError if it is wrong.
  /// So the bytes that earlier calls have read are correct only when their file piece is complete.
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
