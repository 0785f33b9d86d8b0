#include "io/token_data.h"

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

std::string_view reason_of(FileNote note) {
  switch (note) {
    case FileNote::NotText:
      return "is not text (`token_type` bytes reads it as bytes)";
    case FileNote::BrokenLink:
      return "is a broken link";
    case FileNote::SpecialFile:
      return "is a FIFO, a socket or a device";
    case FileNote::Hidden:
      return "is hidden (give its own path)";
    case FileNote::LoneRecord:
      return "is a record without its token file";
    case FileNote::Empty:
      return "is empty";
    case FileNote::RepeatedFolder:
      return "is listed under another path";
    case FileNote::RepeatedFile:
    case FileNote::Json:
    case FileNote::Table:
    case FileNote::ByteOrderMark:
    case FileNote::NotUtf8:
      break;  // of files that are read
  }
  return "?";
}

/// "; 'x' is hidden (give its own path), and 2 more are left out"; empty if there are no notes. All
/// notes of empty data are about what is left out.
std::string left_out_text(std::span<const NotedFile> notes) {
  if (notes.empty()) return "";
  const std::string first =
      "; '" + notes.front().path + "' " + std::string(reason_of(notes.front().note));
  return notes.size() == 1
             ? first
             : first + ", and " + std::to_string(notes.size() - 1) + " more are left out";
}

bool has_name_of_json(const std::string& path) {
  return path.ends_with(".json") || path.ends_with(".jsonl") || path.ends_with(".ndjson");
}

bool has_name_of_table(const std::string& path) {
  return path.ends_with(".csv") || path.ends_with(".tsv");
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
                    std::string(look.advice) + "; `token_type` bytes reads its bytes as they are");
}

void check_text(const std::string& path, const TextScan& scan) {
  if (!scan.no_text_at) return;
  throw FormatError(path, *scan.no_text_at,
                    "the file begins as text, but from here more than a tenth of the bytes are NUL "
                    "or not UTF-8: remove what is not text; `token_type` bytes reads all bytes as "
                    "they are");
}

}  // namespace

TokenData::TokenData(const std::vector<std::string>& paths, TokenType type) {
  for (const std::string& path : paths) {
    std::error_code error;
    fs::is_directory(path, error) ? add_folder(path, type) : add_file(path, type, false);
  }
  if (files_.empty()) {
    const bool is_an_empty_file = paths.size() == 1 && notes_.size() == 1 &&
                                  notes_.front().note == FileNote::Empty &&
                                  notes_.front().path == paths.front();
    if (is_an_empty_file) throw ConfigError("data '" + paths.front() + "' is empty: give text");
    throw ConfigError("there is no token in data " + joined(paths) + left_out_text(notes_));
  }
  first_tokens_.push_back(0);
  for (const TokenFile& file : files_) {
    first_tokens_.push_back(first_tokens_.back() + file.num_tokens());
  }
}

void TokenData::add_folder(const std::string& folder, TokenType type) {
  FolderFiles found = files_under(folder);
  notes_.insert(notes_.end(), found.left_out.begin(), found.left_out.end());
  for (const std::string& path : found.files) add_file(path, type, true);
}

/// A file of a folder that is not text is left out; one that is given by its own path is refused.
void TokenData::add_file(const std::string& path, TokenType type, bool is_in_folder) {
  TokenFile file(path, type);
  if (type == TokenType::Auto && file.type() == TokenType::Bytes) {
    const Look look = file.look();
    if (!is_in_folder) check_text(path, look);
    const TextScan scan = look.is_text ? file.scan_text() : TextScan{};
    if (!is_in_folder) check_text(path, scan);
    if (!look.is_text || scan.no_text_at) {
      return note(FileNote::NotText, path, look.is_text ? "text only at its beginning" : look.kind);
    }
    if (file.num_tokens() > 0) note_text(path, look, scan);
  }
  add(std::move(file));
}

void TokenData::note(FileNote note, const std::string& path, std::string_view kind) {
  notes_.push_back({.note = note, .path = path, .kind = kind});
}

void TokenData::note_text(const std::string& path, const Look& look, const TextScan& scan) {
  if (look.is_json || has_name_of_json(path)) note(FileNote::Json, path);
  if (has_name_of_table(path)) note(FileNote::Table, path);
  if (look.has_byte_order_mark) note(FileNote::ByteOrderMark, path);
  if (!look.is_utf8 || scan.num_flaws > 0) note(FileNote::NotUtf8, path);
}

void TokenData::add(TokenFile file) {
  if (file.num_tokens() == 0) return note(FileNote::Empty, file.path());
  if (!files_.empty() && file.type() != type()) {
    throw ConfigError("data mixes tokens of type " + std::string(name_of(type())) + " ('" +
                      files_.front().path() + "') and " + std::string(name_of(file.type())) +
                      " ('" + file.path() +
                      "'): give files of one type, or name it with `token_type`");
  }
  if (!paths_.try_emplace(file.id(), file.path()).second) {
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
