// The tokens that a run reads from one or more paths: text files or folders of text (each byte is a
// token), or token files.
//
// Several paths are concatenated in the order given. A folder stands for the files under it that
// data_folder.h lists, sorted by path. Empty files are left out. No file is loaded as a whole.
//
// If the type is Auto, a file that is not a .bin must be text (plain_text.h). The constructor reads
// it once from beginning to end to check this. If it is not text (a picture, an archive, a
// program), it is left out if it was found in a folder, and refused if it was given by its own
// path. If the type is not Auto, only empty files are left out. TokenFile then refuses text where
// U16 or U32 is given, also in a folder.
//
// A sample of T positions is T+1 tokens, as the targets are the next tokens: sample i = tokens
// [i*T, i*T+T].
//
// Thread-safety: any number of threads may read, but not while limit_to() runs. Errors: those of
// TokenFile and data_folder.h; ConfigError if there are no tokens, if a file that is given by its
// own path does not begin as text (FormatError if a later part of it is not text), or if paths
// contain tokens of different types.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "io/data_folder.h"
#include "io/token_file.h"

namespace ebb {

class TokenData {
 public:
  TokenData(const std::vector<std::string>& paths, TokenType type = TokenType::Auto);

  size_t num_tokens() const { return first_tokens_.back(); }
  /// The number of files that are read. A file that two paths name counts twice.
  size_t num_files() const { return files_.size(); }
  TokenType type() const { return files_.front().type(); }
  const TokenFile& file(size_t index) const { return files_[index]; }
  /// The number of tokens in the files before file(index).
  size_t first_token(size_t index) const { return first_tokens_[index]; }
  /// What is left out, and what is unusual about the files that are read; in the order of the given
  /// paths.
  std::span<const NotedFile> notes() const { return notes_; }
  /// The path, in this object, of a file that both objects read, also if their paths differ. Empty
  /// if there is none.
  std::string shared_file(const TokenData& other) const;
  /// (num_tokens() - 1) / T, rounded down; T: sequence_length. REQUIRES: sequence_length > 0.
  size_t num_samples(size_t sequence_length) const { return (num_tokens() - 1) / sequence_length; }

  /// The tokens at the end that are no target of a sample.
  size_t num_unused(size_t sequence_length) const {
    return num_tokens() - 1 - num_samples(sequence_length) * sequence_length;
  }

  /// Reads tokens [first, first + out.size()), across files. REQUIRES: these tokens exist.
  void read(size_t first, std::span<int32_t> out) const;
  /// TokenFile::limit_to() for all files. Reads all of them, unless every value of the type is
  /// allowed.
  void limit_to(uint64_t vocabulary);
  /// A hash of the type, of the number of tokens of each file, and of some of the tokens
  /// (sampled_hash.h). It does not depend on paths.
  uint64_t fingerprint() const;

 private:
  void add_folder(const std::string& folder, TokenType type);
  void add_file(const std::string& path, TokenType type, bool is_in_folder);
  void add(TokenFile file);
  void note(FileNote note, const std::string& path, std::string_view kind = {});
  void note_text(const std::string& path, const Look& look, const TextScan& scan);

  std::vector<TokenFile> files_;      // none of them empty
  std::vector<size_t> first_tokens_;  // of each file, and the number of tokens at the end
  std::vector<NotedFile> notes_;
  std::map<FileId, std::string> paths_;  // of all files
};

}  // namespace ebb
