// Input files are read at offsets, and what cannot be read is an error with the numbers.
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>

#include "device/errors.h"
#include "io/input_file.h"
#include "io/json_file.h"
#include "tests/io/safetensors_files.h"

namespace ebb::test {
namespace {

class InputFiles : public FolderTest {};

std::string read(const InputFile& file, uint64_t offset, size_t count) {
  std::string text(count, '?');
  file.read(offset, std::as_writable_bytes(std::span(text)));
  return text;
}

TEST_F(InputFiles, AreReadAtOffsets) {
  const InputFile file(write("f", "0123456789"), "data");
  EXPECT_EQ(file.size(), 10u);
  EXPECT_EQ(read(file, 0, 10), "0123456789");
  EXPECT_EQ(read(file, 7, 3), "789");
  EXPECT_EQ(read(file, 10, 0), "");
  EXPECT_THROW(read(file, 7, 4), LogicError);
  EXPECT_THROW(read(file, 11, 0), LogicError);
}

TEST_F(InputFiles, ThatShrinkAreAnError) {
  const InputFile file(write("f", std::string(10'000, 'x')), "weights");
  ASSERT_EQ(::truncate(path("f").c_str(), 5'000), 0);
  EXPECT_EQ(read(file, 4'990, 10), std::string(10, 'x'));
  const auto error = error_of<FormatError>([&] { read(file, 4'990, 11); });
  EXPECT_SAYS(error, "shrank from 10000 to 5000 bytes");
}

TEST_F(InputFiles, ThatAreReplacedKeepTheirContent) {
  const InputFile file(write("f", "old"), "data");
  std::filesystem::rename(write("g", "n"), path("f"));
  EXPECT_EQ(read(file, 0, 3), "old");
}

TEST_F(InputFiles, ThatCannotBeOpenedAreErrorsOfTheInput) {
  EXPECT_EQ(error_of<InputError>([&] { InputFile(path("no"), "data"); }).error_number, ENOENT);
  ASSERT_EQ(::mkfifo(path("fifo").c_str(), 0600), 0);
  for (const std::string& name : {path("fifo"), folder_.string(), std::string("/dev/null")}) {
    const auto error = error_of<ConfigError>([&] { InputFile(name, "data"); });
    EXPECT_SAYS(error, "not a regular file");
  }
}

TEST_F(InputFiles, WholeFilesHaveALimit) {
  EXPECT_EQ(read_input_file(write("f", "1234"), "text", 4), "1234");
  EXPECT_EQ(read_input_file(write("f", ""), "text", 0), "");
  EXPECT_THROW(read_input_file(write("f", "12345"), "text", 4), FormatError);
}

TEST_F(InputFiles, JsonThatIsNoObjectIsRefusedWithItsPlace) {
  struct Bad {
    std::string text;
    uint64_t offset;
    std::string message;
  };
  const Bad all[] = {{R"({"a": 1e999})", 12, "out of range"},
                     {R"({"a": [1, -1e400]})", 17, "out of range"},
                     {R"("x")", 0, "of type string; needed is an object"},
                     {"[1]", 0, "of type array"},
                     {"null", 0, "of type null"},
                     {"17", 0, "of type number"},
                     {"", 0, "not JSON, but empty"},
                     {R"({"a": 1,})", 8, "not JSON from here on"},
                     {R"({"a": NaN})", 6, "not JSON from here on"},
                     {std::string("{\"a\": \"\xff\"}"), 7, "not JSON from here on"}};
  for (const Bad& bad : all) {
    const std::string file = write("f.json", bad.text);
    const auto error = error_of<FormatError>([&] { read_json_file(file); });
    EXPECT_EQ(error.path, file);
    EXPECT_EQ(error.offset, bad.offset) << bad.text << ": " << error.what();
    EXPECT_SAYS(error, bad.message);
  }
  EXPECT_EQ(read_json_file(write("f.json", R"({"a": 1.7e308})"))["a"], 1.7e308);
}

}  // namespace
}  // namespace ebb::test
