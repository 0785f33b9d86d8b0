// The tokens a run reads: text files or folders of text (bytes as tokens), or token files, one
// after another.
//
// Several paths are concatenated in the order given; a folder stands for all regular files under
// it, sorted by path. Of those the ones that would be read as text but begin otherwise
// (plain_text.h: pictures, archives, programs) are left out, unless the type is said to be bytes; a
// file that is named itself is always taken. Nothing is copied: every file is a mapping of its own.
//
// A sample of T positions is T+1 tokens, as the targets are the next tokens: sample i = tokens
// [i*T, i*T+T].
//
// Thread-safety: immutable after construction. Errors: those of TokenFile; ConfigError where there
// are no tokens or where paths hold tokens of different types.
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
  /// Files of folders that are no text, by path.
  std::span<const std::string> left_out() const { return left_out_; }
  /// floor((n-1)/T). REQUIRES: sequence_length > 0.
  size_t num_samples(size_t sequence_length) const { return (num_tokens() - 1) / sequence_length; }

  /// Tokens [first, first + out.size()), across files. REQUIRES: they exist.
  void read(size_t first, std::span<int32_t> out) const;
  /// FormatError naming file, offset, token and vocabulary where a token is not in [0, vocabulary).
  void check_vocabulary(uint32_t vocabulary) const;

 private:
  void add(TokenFile file);

  std::vector<TokenFile> files_;      // none of them empty
  std::vector<size_t> first_tokens_;  // of each file, and the number of tokens at the end
  std::vector<std::string> left_out_;
};

}  // namespace ebb
