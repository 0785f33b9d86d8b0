// Invalid safetensors files. The error names the file, the tensor and the offset.
#include <ostream>

#include "device/errors.h"
#include "io/safetensors.h"
#include "tests/io/safetensors_files.h"

namespace ebb::test {
namespace {

constexpr uint64_t kInHeader = UINT64_MAX;  // any offset in the header

struct Invalid {
  const char* name;
  std::string content;
  const char* says;
  uint64_t offset = kInHeader;
};

void PrintTo(const Invalid& invalid, std::ostream* out) { *out << invalid.name; }

std::string with_length(uint64_t length, const std::string& rest) {
  return std::string(reinterpret_cast<const char*>(&length), sizeof length) + rest;
}

std::string f32(const std::string& name, const std::string& shape, const std::string& offsets) {
  return "\"" + name + R"(":{"dtype":"F32","shape":)" + shape + R"(,"data_offsets":)" + offsets +
         "}";
}

std::string file(const std::string& entries, size_t data_bytes) {
  return safetensors("{" + entries + "}", std::string(data_bytes, 0));
}

const std::string kA = f32("a", "[2]", "[0,8]"), kB = f32("b", "[2]", "[8,16]");
const uint64_t kData =
    8 + 2 + kA.size() + 1 + kB.size();  // where the data of the tensors "a" and "b" begins

const Invalid kInvalid[] = {
    {"Empty", "", "the file is empty", 0},
    {"SevenBytes", std::string(7, 1), "ends within the 8 bytes", 7},
    {"HeaderBeyondTheLimit", with_length(100'000'001, "{}"), "the format allows 100000000", 0},
    {"WebPage", "<!DOCTYPE html>\n<html>", "not safetensors, but a web page or XML", 0},
    {"Xml", "\n<?xml version=\"1.0\"?><Error/>", "not safetensors, but a web page or XML", 0},
    {"Gguf", "GGUF" + std::string("\3\0\0\0\0\0\0\0", 8), "not safetensors, but a GGUF file", 0},
    {"TorchSave", "PK\x03\x04" + std::string("\0\0\10\10\0\0", 6),
     "not safetensors, but a zip archive (as .docx, .epub, .npz and .pt files are)", 0},
    {"LfsPointer", "version https://git-lfs.github.com/spec/v1\noid sha256:77\nsize 4400000000\n",
     "a Git LFS pointer, not the file itself of 4400000000 bytes: run `git lfs install`", 0},
    {"LfsPointerAfterAByteOrderMark",
     "\xef\xbb\xbfversion https://git-lfs.github.com/spec/v1\r\noid sha256:77\r\nsize 44\r\n",
     "a Git LFS pointer, not the file itself of 44 bytes", 0},
    {"XetPointer", "# xet version 0\nfilesize = 4400\nhash = '77'\n",
     "a git-xet pointer, not the file itself of 4400 bytes: run `git xet checkout`", 0},
    {"LengthOfAllOnes", with_length(UINT64_MAX, "{}"), "18446744073709551615", 0},
    {"HeaderBeyondTheFile", with_length(3, "{}"), "cut short", 10},
    {"NoJson", safetensors("{\"a\"!}", ""), "not JSON from here on", 8 + 4},
    {"TwoValues", safetensors("{}{}", ""), "not JSON from here on"},
    {"HeaderCutShort", safetensors("{\"a\":{", ""), "not JSON"},
    {"HeaderOfNothing", safetensors("", ""), "not JSON"},
    {"NotUtf8", safetensors("{\"\xff\":{}}", ""), "not JSON"},
    {"List", safetensors("[]", ""), "the header has a list"},
    {"Number", safetensors("7", ""), "the header has the number 7"},
    {"TensorIsNull", safetensors(R"({"a":null})", ""), "the header has null"},
    {"DeepNesting", safetensors(std::string(1 << 20, '['), ""), "the header has a list"},
    {"DeepObjects", safetensors(R"({"a":{"shape":{"a":{}}}})", ""), "the header has an object"},
    {"MetadataIsANumber", safetensors(R"({"__metadata__":1})", ""), "the number 1"},
    {"MetadataHoldsANumber", safetensors(R"({"__metadata__":{"a":1}})", ""), "the number 1"},
    {"MetadataTwice", safetensors(R"({"__metadata__":{},"__metadata__":{}})", ""), "two entries"},
    {"MetadataHasAKeyTwice", safetensors(R"({"__metadata__":{"a":"","a":""}})", ""),
     "two entries 'a'"},
    {"NameTwice", file(kA + "," + f32("a", "[2]", "[8,16]"), 16), "two entries 'a'"},
    {"FieldTwice", safetensors(R"({"a":{"dtype":"F32","dtype":"F32"}})", ""),
     "two entries 'dtype'"},
    {"UnknownField", safetensors(R"({"a":{"stride":[1]}})", ""),
     "tensor 'a' has an entry 'stride'"},
    {"UnknownType", safetensors(R"({"a":{"dtype":"F4","shape":[2],"data_offsets":[0,1]}})", "x"),
     "tensor 'a' has the unknown dtype 'F4'", 8 + 18},
    {"TypeIsANumber", safetensors(R"({"a":{"dtype":1}})", ""), "the number 1"},
    {"TypeIsAList", safetensors(R"({"a":{"dtype":["F32"]}})", ""), "a list"},
    {"NoType", safetensors(R"({"a":{"shape":[],"data_offsets":[0,4]}})", "1234"),
     "lacks its dtype"},
    {"NoShape", safetensors(R"({"a":{"dtype":"F32","data_offsets":[0,4]}})", "1234"),
     "lacks its dtype, shape"},
    {"NoOffsets", safetensors(R"({"a":{"dtype":"F32","shape":[1]}})", "1234"),
     "lacks its dtype, shape or data_off"},
    {"NegativeSize", file(f32("a", "[-1]", "[0,4]"), 4), "negative number -1"},
    {"SizeIsNoWholeNumber", file(f32("a", "[1.5]", "[0,4]"), 4), "the number 1.5"},
    {"SizeBeyond64Bits", file(f32("a", "[18446744073709551616]", "[0,4]"), 4),
     "the number 18446744073709551616"},
    {"OneOffset", file(f32("a", "[1]", "[0]"), 4), "1 data_offsets instead of 2"},
    {"ThreeOffsets", file(f32("a", "[1]", "[0,4,4]"), 4), "3 data_offsets instead of 2"},
    {"EndsBeforeItBegins", file(f32("a", "[1]", "[4,0]"), 4),
     "tensor 'a' with data_offsets [4, 0] ends before"},
    {"BeyondTheFile", file(kA + "," + kB, 15),
     "tensor 'b' with data_offsets [8, 16] lies beyond the 15 bytes", kData + 15},
    {"OffsetsBeyondEverything",
     file(f32("a", "[1]", "[18446744073709551612,18446744073709551615]"), 4), "lies beyond"},
    {"TooManyBytesForItsShape", file(f32("a", "[2]", "[0,12]"), 12),
     "has 12 bytes, but F32 [2] takes 8"},
    {"ShapeOverflows", file(f32("a", "[4611686018427387904,4]", "[0,4]"), 4),
     "takes more than 2^64"},
    {"ShapeOverflowsToTheRightSize", file(f32("a", "[4611686018427387905]", "[0,4]"), 4),
     "takes more than 2^64"},
    {"Overlap", file(kA + "," + f32("b", "[2]", "[4,12]"), 12), "tensor 'b' overlaps tensor 'a'",
     kData + 4},
    {"SamePlace", file(kA + "," + f32("b", "[2]", "[0,8]"), 8), "tensor 'b' overlaps tensor 'a'"},
    {"EmptyTensorInAnother", file(kA + "," + f32("b", "[0]", "[4,4]"), 8),
     "tensor 'b' overlaps tensor 'a'"},
    {"HoleBefore", file(f32("a", "[2]", "[4,12]"), 12),
     "4 bytes between the header and tensor 'a'"},
    {"HoleBetween", file(kA + "," + f32("b", "[1]", "[12,16]"), 16),
     "4 bytes between tensor 'a' and tensor 'b'", kData + 1 + 8},
    {"BytesBehind", file(kA + "," + kB, 20), "4 bytes behind tensor 'b'", kData + 16},
    {"BytesBehindNothing", safetensors("{}", "x"), "1 bytes behind the header", 10},
};

class InvalidSafetensors : public FolderTest, public testing::WithParamInterface<Invalid> {};

TEST_P(InvalidSafetensors, AreRejectedWithFileTensorAndOffset) {
  const Invalid& invalid = GetParam();
  const std::string path = write("weights.safetensors", invalid.content);
  const auto error = error_of<FormatError>([&] { SafetensorsFile file(path); });
  EXPECT_EQ(error.path, path);
  EXPECT_SAYS(error, invalid.says);
  if (invalid.offset != kInHeader) {
    EXPECT_EQ(error.offset, invalid.offset) << error.what();
  }
  EXPECT_LE(error.offset, invalid.content.size()) << error.what();
}

INSTANTIATE_TEST_SUITE_P(Files, InvalidSafetensors, testing::ValuesIn(kInvalid),
                         [](const auto& info) { return std::string(info.param.name); });

/// A valid file that is cut at any byte is invalid.
TEST_F(FolderTest, ATruncatedSafetensorsFileIsRejected) {
  const std::string whole = file(kA + "," + kB, 16);
  EXPECT_EQ(SafetensorsFile(write("whole", whole)).tensors().size(), 2u);
  for (size_t bytes = 0; bytes < whole.size(); ++bytes) {
    const std::string path = write("cut", whole.substr(0, bytes));
    EXPECT_THROW(SafetensorsFile{path}, FormatError) << bytes;
  }
}

TEST_F(FolderTest, AMissingSafetensorsFileOrAFolderIsAnError) {
  EXPECT_EQ(error_of<IoError>([&] { SafetensorsFile file(path("none")); }).error_number, ENOENT);
  EXPECT_THROW(SafetensorsFile{folder_.string()}, ConfigError);
}

}  // namespace
}  // namespace ebb::test
