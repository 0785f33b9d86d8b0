// Files of tokens for tests, and all tokens of such data.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "io/token_data.h"
#include "tests/io/safetensors_files.h"

namespace ebb::test {

using Tokens = std::vector<int32_t>;

inline Tokens all_of(const TokenData& data) {
  Tokens tokens(data.num_tokens());
  data.read(0, tokens);
  return tokens;
}

class TokenFiles : public FolderTest {
 protected:
  template <class T>
  std::string write_tokens(const std::string& name, const std::vector<T>& tokens) const {
    return write(name, bytes_of(tokens));
  }

  template <class T>
  std::string write_llmc(const std::string& name, uint32_t magic, uint32_t version, uint32_t count,
                         const std::vector<T>& tokens) const {
    std::vector<uint32_t> header(256);
    header[0] = magic, header[1] = version, header[2] = count;
    return write(name, bytes_of(header) + bytes_of(tokens));
  }
};

}  // namespace ebb::test
