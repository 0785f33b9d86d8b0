// Reading safetensors: stored tensors, their conversion to fp32, and the memory that reading takes.
#include <bit>
#include <cmath>
#include <fstream>

#include "device/errors.h"
#include "io/safetensors.h"
#include "tests/io/safetensors_files.h"

namespace ebb::test {
namespace {

class Safetensors : public FolderTest {};

std::vector<float> floats_of(const SafetensorsFile& file, const char* name) {
  const StoredTensor* tensor = file.find(name);
  std::vector<float> values(tensor->num_elements());
  file.read_floats(*tensor, 0, values);
  return values;
}

// Written by the Python library: safetensors.numpy.save({"b": int64 [7, -1],
// "a": float32 [[0, 1, 2], [3, 4, 5]]}, {"format": "pt"}).
const std::string kByTheLibrary =
    std::string("\x90\0\0\0\0\0\0\0", 8) +
    R"({"__metadata__":{"format":"pt"},"b":{"dtype":"I64","shape":[2],"data_offsets":[0,16]},)"
    R"("a":{"dtype":"F32","shape":[2,3],"data_offsets":[16,40]}})";

TEST_F(Safetensors, ReadsFilesOfThePythonLibrary) {
  std::string content = kByTheLibrary;
  content.resize(8 + 0x90, ' ');
  content += bytes_of<int64_t>({7, -1}) + bytes_of<float>({0, 1, 2, 3, 4, 5});
  const SafetensorsFile file(write("model.safetensors", content));
  EXPECT_EQ(file.metadata(), (std::map<std::string, std::string>{{"format", "pt"}}));
  ASSERT_EQ(file.tensors().size(), 2u);
  EXPECT_EQ(file.tensors()[0].name, "b");
  EXPECT_EQ(file.tensors()[0].type, StoredType::I64);
  EXPECT_EQ(file.tensors()[1].shape, (std::vector<uint64_t>{2, 3}));
  EXPECT_EQ(file.tensors()[1].offset, 8u + 0x90 + 16);
  EXPECT_EQ(file.find("c"), nullptr);
  EXPECT_EQ(floats_of(file, "a"), (std::vector<float>{0, 1, 2, 3, 4, 5}));
  std::vector<float> part(2);
  file.read_floats(*file.find("a"), 3, part);
  EXPECT_EQ(part, (std::vector<float>{3, 4}));
  int64_t number = 0;
  file.read_bytes(*file.find("b"), 8, std::as_writable_bytes(std::span(&number, 1)));
  EXPECT_EQ(number, -1);
}

TEST_F(Safetensors, ScalarsAndEmptyTensors) {
  const SafetensorsFile file(write(
      "a",
      safetensors(R"({"s":{"dtype":"F32","shape":[],"data_offsets":[0,4]},)"
                  R"("e":{"dtype":"F32","shape":[3,0,9223372036854775808],"data_offsets":[4,4]}})",
                  bytes_of<float>({1.5f}))));
  EXPECT_EQ(floats_of(file, "s"), std::vector<float>{1.5f});
  EXPECT_EQ(floats_of(file, "e"), std::vector<float>{});
  EXPECT_EQ(SafetensorsFile(write("b", safetensors("{}", ""))).tensors().size(), 0u);
}

TEST_F(Safetensors, EveryBf16AndF16IsExact) {
  std::vector<uint16_t> bits(65536);
  for (size_t i = 0; i < bits.size(); ++i) bits[i] = static_cast<uint16_t>(i);
  // A tensor of one byte comes first, because data need not be aligned.
  const SafetensorsFile file(write(
      "a", safetensors(R"({"x":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},)"
                       R"("b":{"dtype":"BF16","shape":[65536],"data_offsets":[1,131073]},)"
                       R"("h":{"dtype":"F16","shape":[65536],"data_offsets":[131073,262145]}})",
                       "x" + bytes_of(bits) + bytes_of(bits))));
  const std::vector<float> bf16 = floats_of(file, "b"), f16 = floats_of(file, "h");
  for (uint32_t i = 0; i < 65536; ++i) {
    ASSERT_EQ(std::bit_cast<uint32_t>(bf16[i]), i << 16) << i;
    const int exponent = static_cast<int>(i >> 10 & 31), fraction = static_cast<int>(i & 1023);
    if (exponent == 31) {
      ASSERT_TRUE(fraction == 0 ? std::isinf(f16[i]) : std::isnan(f16[i])) << i;
      continue;
    }
    const double magnitude =
        exponent == 0 ? std::ldexp(fraction, -24) : std::ldexp(1024 + fraction, exponent - 25);
    ASSERT_EQ(static_cast<double>(f16[i]), i & 0x8000 ? -magnitude : magnitude) << i;
    ASSERT_EQ(std::signbit(f16[i]), (i & 0x8000) != 0) << i;
  }
}

/// The expected values follow from IEEE 754: round to nearest, ties to even.
TEST_F(Safetensors, DoublesAreRoundedToFloats) {
  const double half_ulp = std::ldexp(1.0, -24);  // of fp32, at 1
  const double smallest = std::ldexp(1.0, -149);
  const SafetensorsFile file(write(
      "a", safetensors(R"({"d":{"dtype":"F64","shape":[7],"data_offsets":[0,56]}})",
                       bytes_of<double>({0.1, 1 + half_ulp, 1 + half_ulp + 1e-15, 1 + 3 * half_ulp,
                                         smallest / 2, smallest * 0.75, -INFINITY}))));
  const float ulp = std::ldexp(1.0f, -23);
  std::vector<float> values(7);
  file.read_floats(*file.find("d"), 0, values);
  EXPECT_EQ(values, (std::vector<float>{0.1f, 1, 1 + ulp, 1 + 2 * ulp, 0,
                                        static_cast<float>(smallest), -INFINITY}));
  std::vector<float> part(2);
  file.read_floats(*file.find("d"), 2, part);
  EXPECT_EQ(part, (std::vector<float>{1 + ulp, 1 + 2 * ulp}));
}

TEST_F(Safetensors, ADoubleBeyondTheRangeOfFloatsIsRejected) {
  const std::string path =
      write("a", safetensors(R"({"d":{"dtype":"F64","shape":[2],"data_offsets":[0,16]}})",
                             bytes_of<double>({1, 1e300})));
  const SafetensorsFile file(path);
  std::vector<float> values(2);
  const auto error = error_of<FormatError>([&] { file.read_floats(*file.find("d"), 0, values); });
  EXPECT_SAYS(error, "1e+300 in tensor 'd' is too large for fp32");
  EXPECT_EQ(error.path, path);
}

TEST_F(Safetensors, IntegersAreNotConvertedToFloats) {
  const std::string path = write(
      "a",
      safetensors(R"({"n":{"dtype":"I64","shape":[1],"data_offsets":[0,8]}})", std::string(8, 0)));
  const SafetensorsFile file(path);
  const auto error = error_of<ConfigError>([&] { floats_of(file, "n"); });
  EXPECT_SAYS(error, path);
  EXPECT_SAYS(error, "tensor 'n' is I64 [1]");
}

TEST_F(Safetensors, ReadingPastATensorIsALogicError) {
  const SafetensorsFile file(write(
      "a",
      safetensors(R"({"n":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})", std::string(4, 0))));
  std::vector<float> two(2);
  EXPECT_THROW(file.read_floats(*file.find("n"), 0, two), LogicError);
  EXPECT_THROW(file.read_floats(*file.find("n"), 2, {}), LogicError);
}

size_t resident_file_kib() {
  std::ifstream status("/proc/self/status");
  for (std::string word; status >> word;) {
    if (word != "RssFile:") continue;
    size_t kib = 0;
    status >> kib;
    return kib;
  }
  return 0;
}

TEST_F(Safetensors, PagesThatWereReadAreReleased) {
  constexpr size_t kBytes = size_t{64} << 20;
  const SafetensorsFile file(write(
      "a", safetensors(R"({"w":{"dtype":"BF16","shape":[33554432],"data_offsets":[0,67108864]}})",
                       std::string(kBytes, 1))));
  const size_t before = resident_file_kib();
  std::vector<float> values(1 << 20);
  size_t most = 0;
  for (uint64_t first = 0; first < kBytes / 2; first += values.size()) {
    file.read_floats(file.tensors()[0], first, values);
    most = std::max(most, resident_file_kib());
  }
  EXPECT_LT(most, before + 8192);
}

}  // namespace
}  // namespace ebb::test
