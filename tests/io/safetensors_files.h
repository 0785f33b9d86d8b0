// Valid and invalid safetensors files, and a temporary folder for them.
#pragma once

#include <gtest/gtest.h>

#include <filesystem>
#include <string>
#include <vector>

#include "tests/bytes_of.h"
#include "tests/error_of.h"

namespace ebb::test {

/// A temporary folder for one test.
class FolderTest : public testing::Test {
 protected:
  void SetUp() override;
  void TearDown() override;

  std::string path(const std::string& name) const { return (folder_ / name).string(); }
  /// Writes a file and creates its folders. Returns the path.
  std::string write(const std::string& name, const std::string& content) const;
  static std::string content_of(const std::string& path);
  /// The sorted names of the files and folders in the folder.
  std::vector<std::string> names() const;

  std::filesystem::path folder_;
};

/// The bytes of a file: the length of `json`, `json`, and `data`.
std::string safetensors(const std::string& json, const std::string& data);

}  // namespace ebb::test
