// The record that tools/tokenize.py writes beside a token file: for PREFIX.bin, the JSON file
// PREFIX.bin.json. It tells how the tokens were made, so that a run can notice that its flags or
// its model do not match them. A token file without a record is not checked. Where the token file
// is a link, the record lies beside the link, or beside the file to which it leads.
//
// Errors: those of InputFile; FormatError, which names the file and the field.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace ebb {

/// What the labels of a token file are.
enum class Targets : uint8_t {
  Unknown,  ///< older records do not say it
  Next,     ///< the next tokens
  Masked    ///< the tokens that masks hide
};

struct TokenRecord {
  std::string path;  ///< of the record
  uint64_t num_tokens = 0;
  uint64_t vocabulary = 0;  ///< of the tokenizer
  std::string tokenizer;
  std::optional<uint64_t> sequence_length;  ///< of the rows; nullopt: there are no rows
  bool documents = false;                   ///< PREFIX.documents was written too
  bool labels = false;                      ///< PREFIX.labels was written too
  Targets targets = Targets::Unknown;
};

/// A pure function; `path` is that of the record.
TokenRecord parse_token_record(const std::string& path, const std::string& text);

/// Where the record of a token file can be: beside the name of the file, and beside the file to
/// which it leads. Only a name that ends in .bin has a record.
std::vector<std::string> record_paths(const std::string& token_file);
/// The first of record_paths() that exists; empty if none does.
std::string find_record(const std::string& token_file);
/// The token file of a record, by their names; empty if the name is not that of a record.
std::string file_of_record(const std::string& path);

/// nullopt if find_record() finds none.
std::optional<TokenRecord> read_token_record(const std::string& token_file);

}  // namespace ebb
