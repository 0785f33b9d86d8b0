#include "io/token_data.h"

#include <algorithm>
#include <filesystem>
#include <system_error>

#include "device/errors.h"

namespace ebb {
namespace {

namespace fs = std::filesystem;

/// All regular files under a folder, sorted by path.
std::vector<std::string> files_under(const std::string& folder) {
  std::vector<std::string> files;
  try {
    for (const auto& entry : fs::recursive_directory_iterator(folder)) {
      if (entry.is_regular_file()) files.push_back(entry.path().string());
    }
  } catch (const fs::filesystem_error& error) {
    throw IoError("cannot list data folder",
                  error.path1().empty() ? folder : error.path1().string(), error.code().value());
  }
  std::sort(files.begin(), files.end());
  return files;
}

std::vector<std::string> expand(const std::vector<std::string>& paths) {
  std::vector<std::string> files;
  for (const std::string& path : paths) {
    std::error_code error;
    if (fs::is_directory(path, error)) {
      const auto found = files_under(path);
      files.insert(files.end(), found.begin(), found.end());
    } else {
      files.push_back(path);
    }
  }
  return files;
}

std::string joined(const std::vector<std::string>& paths) {
  std::string text;
  for (const std::string& path : paths) text += (text.empty() ? "'" : ", '") + path + "'";
  return text;
}

}  // namespace

TokenData::TokenData(const std::vector<std::string>& paths, TokenType type) {
  for (const std::string& path : expand(paths)) {
    TokenFile file(path, type);
    if (file.num_tokens() == 0) continue;
    if (!files_.empty() && file.type() != files_.front().type()) {
      throw ConfigError("data mixes tokens of type " + std::string(name_of(files_.front().type())) +
                        " ('" + files_.front().path() + "') and " +
                        std::string(name_of(file.type())) + " ('" + path +
                        "'): give files of one type, or name it with --token-type");
    }
    files_.push_back(std::move(file));
  }
  if (files_.empty()) throw ConfigError("data is empty: there is no token in " + joined(paths));
  first_tokens_.push_back(0);
  for (const TokenFile& file : files_) {
    first_tokens_.push_back(first_tokens_.back() + file.num_tokens());
  }
}

void TokenData::read(size_t first, std::span<int32_t> out) const {
  EBB_CHECK(first <= num_tokens() && out.size() <= num_tokens() - first, "read past the tokens");
  const auto next = std::upper_bound(first_tokens_.begin(), first_tokens_.end(), first);
  for (size_t i = static_cast<size_t>(next - first_tokens_.begin()) - 1; !out.empty(); ++i) {
    const size_t count = std::min(out.size(), first_tokens_[i + 1] - first);
    files_[i].read(first - first_tokens_[i], out.first(count));
    first += count;
    out = out.subspan(count);
  }
}

void TokenData::check_vocabulary(uint32_t vocabulary) const {
  for (const TokenFile& file : files_) file.check_vocabulary(vocabulary);
}

}  // namespace ebb
