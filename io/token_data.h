// The tokens that a run reads from one or more paths: text files or folders of text (each byte is a
// token), or token files.
//
// Several paths are concatenated in the order given; a folder stands for all regular files under
// it, sorted by path. Files of a folder that would be read as text but are not text (plain_text.h:
// pictures, archives, programs) are skipped, unless the given type is Bytes. A file that is given
// by its own path is never skipped. Every file is mapped and not copied.
//
// A sample of T positions is T+1 tokens, as the targets are the next tokens: sample i = tokens
// [i*T, i*T+T].
//
// Thread-safety: immutable after construction. Errors: those of TokenFile; ConfigError if there are
// no tokens, or if paths contain tokens of different types.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "io/token_file.h"

namespace ebb {

class TokenData {
 public:
  TokenData(const std::vector<std::string>& paths, TokenType type = TokenType::Auto);

  size_t num_tokens() const { return first_tokens_.back(); }
  size_t num_files() const { return files_.size(); }
  TokenType type() const { return files_.front().type(); }
  /// The skipped files of folders, sorted by path.
  std::span<const std::string> left_out() const { return left_out_; }
  /// (num_tokens() - 1) / T, rounded down; T: sequence_length. REQUIRES: sequence_length > 0.
  size_t num_samples(size_t sequence_length) const { return (num_tokens() - 1) / sequence_length; }

  /// Reads tokens [first, first + out.size()), across files. REQUIRES: these tokens exist.
  void read(size_t first, std::span<int32_t> out) const;
  /// Throws FormatError that names file, offset, token and vocabulary if a token is not in [0,
  /// vocabulary).
  void check_vocabulary(uint32_t vocabulary) const;

 private:
  void add(TokenFile file);

  std::vector<TokenFile> files_;      // none of them empty
  std::vector<size_t> first_tokens_;  // of each file, and the number of tokens at the end
  std::vector<std::string> left_out_;
};

}  // namespace ebb
