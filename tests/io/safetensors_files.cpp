#include "tests/io/safetensors_files.h"

#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <fstream>
#include <sstream>

namespace ebb::test {

namespace fs = std::filesystem;

void FolderTest::SetUp() {
  std::string name = (fs::temp_directory_path() / "ebb-test-io-XXXXXX").string();
  ASSERT_NE(::mkdtemp(name.data()), nullptr);
  folder_ = name;
}

void FolderTest::TearDown() { fs::remove_all(folder_); }

std::string FolderTest::write(const std::string& name, const std::string& content) const {
  fs::create_directories((folder_ / name).parent_path());
  std::ofstream(folder_ / name, std::ios::binary) << content;
  return path(name);
}

std::string FolderTest::content_of(const std::string& path) {
  std::ostringstream text;
  text << std::ifstream(path, std::ios::binary).rdbuf();
  return text.str();
}

std::vector<std::string> FolderTest::names() const {
  std::vector<std::string> found;
  for (const auto& entry : fs::directory_iterator(folder_)) {
    found.push_back(entry.path().filename().string());
  }
  std::sort(found.begin(), found.end());
  return found;
}

std::string safetensors(const std::string& json, const std::string& data) {
  const uint64_t length = json.size();
  return std::string(reinterpret_cast<const char*>(&length), sizeof length) + json + data;
}

}  // namespace ebb::test
