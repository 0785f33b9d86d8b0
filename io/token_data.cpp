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
    throw InputError("cannot list data folder",
                     error.path1().empty() ? folder : error.path1().string(), error.code().value());
  }
  std::sort(files.begin(), files.end());
  return files;
}

std::string joined(const std::vector<std::string>& paths) {
  std::string text;
  for (const std::string& path : paths) text += (text.empty() ? "'" : ", '") + path + "'";
  return text;
}

}  // namespace

TokenData::TokenData(const std::vector<std::string>& paths, TokenType type) {
  for (const std::string& path : paths) {
    std::error_code error;
    if (!fs::is_directory(path, error)) {
      add(TokenFile(path, type));
      continue;
    }
    for (const std::string& found : files_under(path)) {
      TokenFile file(found, type);
      const bool would_be_text = type == TokenType::Auto && file.type() == TokenType::Bytes;
      if (would_be_text && !file.is_text()) {
        left_out_.push_back(found);
      } else {
        add(std::move(file));
      }
    }
  }
  if (files_.empty()) {
    throw ConfigError("data is empty: there is no token in " + joined(paths) +
                      (left_out_.empty()
                           ? ""
                           : "; " + std::to_string(left_out_.size()) +
                                 " files there are no text, the first '" + left_out_[0] +
                                 "': --token-type bytes reads them as bytes"));
  }
  first_tokens_.push_back(0);
  for (const TokenFile& file : files_) {
    first_tokens_.push_back(first_tokens_.back() + file.num_tokens());
  }
}

void TokenData::add(TokenFile file) {
  if (file.num_tokens() == 0) return;
  if (!files_.empty() && file.type() != type()) {
    throw ConfigError("data mixes tokens of type " + std::string(name_of(type())) + " ('" +
                      files_.front().path() + "') and " + std::string(name_of(file.type())) +
                      " ('" + file.path() +
                      "'): give files of one type, or name it with --token-type");
  }
  files_.push_back(std::move(file));
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
