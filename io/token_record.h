// The record that tools/tokenize.py writes beside a token file: for PREFIX.bin, the JSON file
// PREFIX.bin.json. It tells how the tokens were made, so that a run can notice that its flags or
// its model do not match them. A token file without a record is not checked.
//
// Errors: IoError; FormatError, which names the file and the field.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace ebb {

struct TokenRecord {
  uint64_t num_tokens = 0;
  uint64_t vocabulary = 0;  ///< of the tokenizer
  std::string tokenizer;
  std::optional<uint64_t> sequence_length;  ///< of the rows; nullopt: there are no rows
  bool documents = false;                   ///< PREFIX.documents was written too
  bool labels = false;                      ///< PREFIX.labels was written too
};

/// A pure function; `path` is for messages.
TokenRecord parse_token_record(const std::string& path, std::string_view text);

/// The path of the record of a token file.
std::string record_path(const std::string& token_file);
/// The token file of a record, by their names; empty if the name is not that of a record.
std::string file_of_record(const std::string& path);

/// nullopt if the token file has no record, or its name does not end in .bin.
std::optional<TokenRecord> read_token_record(const std::string& token_file);

}  // namespace ebb
