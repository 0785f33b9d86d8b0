#include "io/token_data.h"

#include <sys/stat.h>

#include <algorithm>
#include <filesystem>
#include <system_error>

#include "device/errors.h"
#include "io/sampled_hash.h"
#include "io/token_record.h"

namespace ebb {
namespace {

namespace fs = std::filesystem;

std::string joined(const std::vector<std::string>& paths) {
  std::string text;
  for (const std::string& path : paths) text += (text.empty() ? "'" : ", '") + path + "'";
  return text;
}

/// "; 2 files there are no text, the first 'x': ..."; empty if all files there are text.
std::string others_text(std::span<const NotedFile> notes) {
  const auto is_other = [](const NotedFile& file) { return file.note == FileNote::NotText; };
  const auto first = std::ranges::find_if(notes, is_other);
  if (first == notes.end()) return "";
  return "; " + std::to_string(std::ranges::count_if(notes, is_other)) +
         " files there are no text, the first '" + first->path +
         "': --token-type bytes reads them as bytes";
}

bool has_name_of_json(const std::string& path) {
  return path.ends_with(".json") || path.ends_with(".jsonl") || path.ends_with(".ndjson");
}

/// A file that is given by its own path must be text. `look` is what its first bytes show.
void check_text(const std::string& path, const Look& look) {
  if (const std::string described = file_of_record(path); !described.empty()) {
    throw ConfigError("data '" + path + "' is the record of a token file, not text: give '" +
                      described + "'");
  }
  if (look.is_text) return;
  const std::string kind = look.kind.empty() ? "" : std::string(look.kind) + ", ";
  throw ConfigError("data '" + path + "' is " + kind + "not text in UTF-8: " +
                    std::string(look.advice) + "; --token-type bytes reads its bytes as they are");
}

}  // namespace

TokenData::TokenData(const std::vector<std::string>& paths, TokenType type) {
  for (const std::string& path : paths) {
    std::error_code error;
    fs::is_directory(path, error) ? add_folder(path, type) : add_path(path, type);
  }
  if (files_.empty()) {
    throw ConfigError("data is empty: there is no token in " + joined(paths) + others_text(notes_));
  }
  first_tokens_.push_back(0);
  for (const TokenFile& file : files_) {
    first_tokens_.push_back(first_tokens_.back() + file.num_tokens());
  }
}

void TokenData::add_folder(const std::string& folder, TokenType type) {
  FolderFiles found = files_under(folder);
  notes_.insert(notes_.end(), found.left_out.begin(), found.left_out.end());
  for (const std::string& path : found.files) {
    TokenFile file(path, type);
    if (type == TokenType::Auto && file.type() == TokenType::Bytes) {
      const Look look = file.look();
      if (!look.is_text) {
        note(FileNote::NotText, path, look.kind);
        continue;
      }
      note_text(path, look);
    }
    add(std::move(file));
  }
}

void TokenData::add_path(const std::string& path, TokenType type) {
  TokenFile file(path, type);
  if (type == TokenType::Auto && file.type() == TokenType::Bytes) {
    const Look look = file.look();
    check_text(path, look);
    note_text(path, look);
  }
  add(std::move(file));
}

void TokenData::note(FileNote note, const std::string& path, std::string_view kind) {
  notes_.push_back({.note = note, .path = path, .kind = kind});
}

void TokenData::note_text(const std::string& path, const Look& look) {
  if (look.is_json || has_name_of_json(path)) note(FileNote::Json, path);
  if (look.has_byte_order_mark) note(FileNote::ByteOrderMark, path);
  if (!look.is_utf8) note(FileNote::NotUtf8, path);
}

void TokenData::add(TokenFile file) {
  if (file.num_tokens() == 0) return note(FileNote::Empty, file.path());
  if (!files_.empty() && file.type() != type()) {
    throw ConfigError("data mixes tokens of type " + std::string(name_of(type())) + " ('" +
                      files_.front().path() + "') and " + std::string(name_of(file.type())) +
                      " ('" + file.path() +
                      "'): give files of one type, or name it with --token-type");
  }
  struct stat status;
  const bool is_there = ::stat(file.path().c_str(), &status) == 0;
  if (is_there && !paths_.try_emplace({status.st_dev, status.st_ino}, file.path()).second) {
    note(FileNote::RepeatedFile, file.path());
  }
  files_.push_back(std::move(file));
}

std::string TokenData::shared_file(const TokenData& other) const {
  for (const auto& [id, path] : paths_) {
    if (other.paths_.contains(id)) return path;
  }
  return {};
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

void TokenData::limit_to(uint64_t vocabulary) {
  for (TokenFile& file : files_) file.limit_to(vocabulary);
}

uint64_t TokenData::fingerprint() const {
  uint64_t seed = static_cast<uint64_t>(type());
  for (const TokenFile& file : files_) {
    const uint64_t size = file.num_tokens();
    const int32_t halves[] = {static_cast<int32_t>(size), static_cast<int32_t>(size >> 32)};
    seed = hash_values(halves, seed);
  }
  return sampled_hash(num_tokens(), seed,
                      [this](uint64_t first, std::span<int32_t> out) { read(first, out); });
}

}  // namespace ebb
