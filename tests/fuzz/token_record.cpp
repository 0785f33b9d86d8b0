// The record that tools/tokenize.py writes beside a token file.
#include "io/token_record.h"

#include <optional>

#include "fuzz/fuzz.h"

namespace ebb::fuzz {

void test_input(Bytes input) {
  write_file("tokens.bin.json", input);
  is_accepted([&] {
    const std::optional<TokenRecord> record = read_token_record(folder() + "/tokens.bin");
    require(record.has_value(), "a record that is there is read or refused");
  });
}

}  // namespace ebb::fuzz
