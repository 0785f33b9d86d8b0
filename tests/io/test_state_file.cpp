// State files: planes may be written and read in parts of any size, and each piece has a checksum.
#include <algorithm>
#include <random>

#include "device/errors.h"
#include "io/state_file.h"
#include "tests/io/safetensors_files.h"

namespace ebb::test {
namespace {

constexpr int64_t kPiece = int64_t{4} << 20;
constexpr int64_t kSizes[] = {1, kPiece - 1, kPiece, kPiece + 1, 2 * kPiece};

class StateFiles : public FolderTest {
 protected:
  void SetUp() override {
    FolderTest::SetUp();
    header_.planes = {{.name = "x", .bytes_per_group = 1}};
    std::minstd_rand random(1);
    for (const int64_t size : kSizes) {
      header_.parameters.push_back({.name = std::to_string(size), .shape = {size}});
      bytes_.emplace_back(static_cast<size_t>(size));
      std::ranges::generate(bytes_.back(), [&] { return static_cast<std::byte>(random()); });
    }
    StateFileWriter file(path("state"), header_);
    for (size_t i = bytes_.size(); i-- > 0;) {
      uint64_t first = 0;
      in_parts<const std::byte>(bytes_[i], 1'000'003, [&](auto part) {
        file.write(i, 0, first, part);
        first += part.size();
      });
    }
    file.finish();
  }

  template <class Byte, class Take>
  static void in_parts(std::span<Byte> bytes, size_t most, const Take& take) {
    while (!bytes.empty()) {
      const auto part = bytes.first(std::min(most, bytes.size()));
      take(part);
      bytes = bytes.subspan(part.size());
    }
  }
  static std::vector<std::byte> read(StateFileReader& file, size_t i, size_t most) {
    std::vector<std::byte> read(static_cast<size_t>(kSizes[i]));
    in_parts<std::byte>(read, most, [&](auto part) { file.read(i, 0, part); });
    return read;
  }

  StateFileHeader header_;
  std::vector<std::vector<std::byte>> bytes_;
};

TEST_F(StateFiles, AreReadInPartsOfAnySize) {
  StateFileReader file(path("state"));
  for (const size_t most : {size_t{2} * kPiece, size_t{kPiece}, size_t{3'000'017}}) {
    for (size_t i = 0; i < bytes_.size(); ++i) {
      EXPECT_TRUE(read(file, i, most) == bytes_[i]) << kSizes[i] << " in " << most;
    }
  }
}

/// A plane with a byte for each element and four bytes for each 64 elements.
TEST_F(StateFiles, PlanesMayHaveGroups) {
  const StateFileHeader header{
      .planes = {{.name = "scaled", .bytes_per_group = 68, .elements_per_group = 64}},
      .parameters = {{.name = "p", .shape = {65}}},
      .numbers = {}};
  std::vector<std::byte> bytes(2 * 68, std::byte{7});
  StateFileWriter written(path("groups"), header);
  written.write(0, 0, 0, bytes);
  written.finish();
  StateFileReader file(path("groups"));
  EXPECT_TRUE(file.header() == header);
  std::vector<std::byte> read(bytes.size());
  file.read(0, 0, read);
  EXPECT_TRUE(read == bytes);
}

TEST_F(StateFiles, ADamagedPieceIsAnErrorAndOtherPiecesAreRead) {
  const size_t last = bytes_.size() - 1;
  std::string content = content_of(path("state"));
  content[content.size() - static_cast<size_t>(kPiece) - 5] ^=
      1;  // in the first piece of the last parameter
  write("state", content);
  StateFileReader file(path("state"));
  for (int i = 0; i < 2; ++i) {
    EXPECT_THROW(read(file, last, 3'000'017), FormatError);
    EXPECT_THROW(read(file, last, 2 * kPiece), FormatError);
  }
  EXPECT_TRUE(read(file, last - 1, kPiece) == bytes_[last - 1]);
}

TEST_F(StateFiles, APlaneMustBeWrittenCompletely) {
  StateFileWriter file(path("other"), header_);
  EXPECT_THROW(file.write(0, 0, 0, bytes_[1]), LogicError);
  for (size_t i = 0; i < bytes_.size(); ++i) {
    file.write(i, 0, 0, std::span(bytes_[i]).first(bytes_[i].size() - (i == 2)));
  }
  EXPECT_THROW(file.finish(), LogicError);
}

}  // namespace
}  // namespace ebb::test
