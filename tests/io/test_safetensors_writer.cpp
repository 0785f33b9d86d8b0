// Writing safetensors: the bytes equal those of the Python library, values are rounded to nearest,
// and an incomplete file is never visible.
#include <cmath>
#include <limits>
#include <thread>

#include "device/errors.h"
#include "io/safetensors.h"
#include "io/safetensors_writer.h"
#include "tests/io/safetensors_files.h"

namespace ebb::test {
namespace {

class SafetensorsWriting : public FolderTest {};

std::span<const std::byte> as_bytes(const std::string& text) {
  return std::as_bytes(std::span(text.data(), text.size()));
}

TEST_F(SafetensorsWriting, GivesTheBytesOfThePythonLibrary) {
  SafetensorsWriter writer(path("w"),
                           {{"a", StoredType::F32, {2, 3}}, {"b", StoredType::I64, {2}}});
  const std::vector<float> a = {0, 1, 2, 3, 4, 5};
  writer.write_floats(0, 3, std::span(a).subspan(3));
  writer.write_bytes(1, 0, as_bytes(bytes_of<int64_t>({7, -1})));
  writer.write_floats(0, 0, std::span(a).first(3));
  EXPECT_EQ(names(), std::vector<std::string>{"w.unfinished"});
  writer.finish();
  EXPECT_EQ(names(), std::vector<std::string>{"w"});
  // safetensors.numpy.save({"b": int64 [7, -1], "a": float32 [[0, 1, 2], [3, 4, 5]]},
  // {"format": "pt"})
  const std::string json =
      R"({"__metadata__":{"format":"pt"},"b":{"dtype":"I64","shape":[2],"data_offsets":[0,16]},)"
      R"("a":{"dtype":"F32","shape":[2,3],"data_offsets":[16,40]}})";
  std::string padded = json;
  padded.resize((json.size() + 7) / 8 * 8, ' ');
  EXPECT_EQ(content_of(path("w")),
            safetensors(padded, bytes_of<int64_t>({7, -1}) + bytes_of<float>(a)));
}

TEST_F(SafetensorsWriting, RoundsToNearestAndTiesToEven) {
  // bf16 has 8 bits of significand and fp16 has 11, so 1 + 2^-8 and 1 + 2^-11 are ties.
  const std::vector<float> values = {1 + 0x1p-8f, 1 + 0x3p-8f, 1 + 0x1.1p-8f, -1 - 0x1p-8f,
                                     0x1p-133f};
  const std::vector<uint16_t> as_bf16 = {0x3f80, 0x3f82, 0x3f81, 0xbf80, 0x0001};
  const std::vector<float> halves = {1 + 0x1p-11f, 1 + 0x3p-11f, -65519.f, 0x1p-25f, 0x3p-25f};
  const std::vector<uint16_t> as_f16 = {0x3c00, 0x3c02, 0xfbff, 0x0000, 0x0002};
  SafetensorsWriter writer(path("w"), {{"b", StoredType::BF16, {5}}, {"h", StoredType::F16, {5}}});
  writer.write_floats(0, 0, values);
  writer.write_floats(1, 0, halves);
  writer.finish();
  EXPECT_TRUE(content_of(path("w")).ends_with(bytes_of(as_bf16) + bytes_of(as_f16)));
}

TEST_F(SafetensorsWriting, ValuesOutOfRangeAreRejected) {
  SafetensorsWriter writer(path("w"),
                           {{"b", StoredType::BF16, {1}}, {"h", StoredType::F16, {20000}}});
  std::vector<float> values(20000, 1.f);
  values[17000] = 65520.f;
  const auto error = error_of<ConfigError>([&] { writer.write_floats(1, 0, values); });
  EXPECT_SAYS(error, "65520 in tensor 'h' is too large for fp16");
  EXPECT_THROW(writer.write_floats(0, 0, std::vector<float>{3.4e38f}), ConfigError);
  writer.write_floats(0, 0, std::vector<float>{std::numeric_limits<float>::infinity()});
}

TEST_F(SafetensorsWriting, EachTypeIsReadAndWrittenWithTheSameBytes) {
  for (const StoredType type : {StoredType::F32, StoredType::BF16, StoredType::F16}) {
    std::string data;
    for (uint32_t i = 0; i < 65536; ++i) {
      const bool is_nan = type == StoredType::F16 ? (i & 0x7fff) > 0x7c00 : (i & 0x7fff) > 0x7f80;
      const uint32_t bits = type == StoredType::F32 ? i * 65521 : is_nan ? 0x7fff : i;
      data.append(reinterpret_cast<const char*>(&bits), size_of(type));
    }
    SafetensorsWriter first(path("first"), {{"w", type, {256, 256}}});
    first.write_bytes(0, 0, as_bytes(data));
    first.finish();
    const SafetensorsFile file(path("first"));
    std::vector<float> values(65536);
    file.read_floats(file.tensors()[0], 0, values);
    SafetensorsWriter second(path("second"), {{"w", type, {256, 256}}});
    second.write_floats(0, 0, values);
    second.finish();
    EXPECT_EQ(content_of(path("second")), content_of(path("first"))) << name_of(type);
  }
}

TEST_F(SafetensorsWriting, SeveralThreadsMayWrite) {
  SafetensorsWriter writer(path("w"), {{"w", StoredType::F32, {4, 1000}}});
  std::vector<std::thread> threads;
  for (uint64_t i = 0; i < 4; ++i) {
    threads.emplace_back([&writer, i] {
      const std::vector<float> row(1000, static_cast<float>(i));
      writer.write_floats(0, i * 1000, row);
    });
  }
  for (std::thread& thread : threads) thread.join();
  writer.finish();
  const SafetensorsFile file(path("w"));
  std::vector<float> values(4000);
  file.read_floats(file.tensors()[0], 0, values);
  for (size_t i = 0; i < values.size(); ++i) ASSERT_EQ(values[i], static_cast<float>(i / 1000));
}

TEST_F(SafetensorsWriting, AFileWithAMissingTensorCannotBeFinished) {
  SafetensorsWriter writer(path("w"), {{"w", StoredType::F32, {2}}});
  writer.write_floats(0, 0, std::vector<float>{1.f});
  EXPECT_SAYS(error_of<LogicError>([&] { writer.finish(); }), "4 of 8 bytes");
  EXPECT_THROW(writer.write_floats(0, 1, std::vector<float>{1.f, 2.f}), LogicError);
}

TEST_F(SafetensorsWriting, AnUnfinishedFileIsRemoved) {
  write("w", "old");
  { SafetensorsWriter writer(path("w"), {{"w", StoredType::F32, {2}}}); }
  EXPECT_EQ(names(), std::vector<std::string>{"w"});
  EXPECT_EQ(content_of(path("w")), "old");
}

TEST_F(SafetensorsWriting, TwoTensorsMustNotHaveTheSameName) {
  const auto error = error_of<ConfigError>([&] {
    SafetensorsWriter writer(path("w"),
                             {{"w", StoredType::F32, {2}}, {"w", StoredType::BF16, {2}}});
  });
  EXPECT_SAYS(error, "tensor 'w' is given twice");
  EXPECT_EQ(names(), std::vector<std::string>{});
}

TEST_F(SafetensorsWriting, NamesMayContainAnyCharacter) {
  const std::string name = "quote \" backslash \\ tab \t \xc3\xbc";
  SafetensorsWriter writer(path("w"), {{name, StoredType::F32, {}}});
  writer.write_floats(0, 0, std::vector<float>{2.f});
  writer.finish();
  EXPECT_NE(SafetensorsFile(path("w")).find(name), nullptr);
}

}  // namespace
}  // namespace ebb::test
