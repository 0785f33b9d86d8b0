// The TOML of --config.
#include <vector>

#include "fuzz/fuzz.h"
#include "tools/config_file.h"

namespace ebb::fuzz {
namespace {

// A flag of each kind.
const std::vector<Flag> kFlags = {{.names = {"--steps", "-n"},
                                   .value = "N",
                                   .description = "",
                                   .group = "Data",
                                   .takes = Flag::Takes::One},
                                  {.names = {"--data"},
                                   .value = "PATH",
                                   .description = "",
                                   .group = "Data",
                                   .takes = Flag::Takes::Several},
                                  {.names = {"--resume"},
                                   .value = "DIR",
                                   .description = "",
                                   .group = "Output",
                                   .takes = Flag::Takes::Perhaps},
                                  {.names = {"--fast"},
                                   .value = "",
                                   .description = "",
                                   .group = "Output",
                                   .takes = Flag::Takes::Nothing}};

std::vector<ConfigValue> read(std::string_view text) {
  return read_config_text("input.toml", text, kFlags);
}

/// A value that was written in TOML must be read as the same value.
void check_round_trip(const std::string& value) {
  must_accept([&] {
    const auto again = read("steps = " + toml_value(value));
    require(again.size() == 1 && again[0].flag.values == std::vector{value},
            "a value that was written is the same");
  });
}

}  // namespace

void test_input(Bytes input) {
  is_accepted([&] {
    for (const ConfigValue& value : read(text_of(input))) {
      note_accepted();
      require(!value.flag.name.empty() && !value.flag.values.empty(), "each flag has a value");
      for (const std::string& text : value.flag.values) check_round_trip(text);
    }
  });
}

}  // namespace ebb::fuzz
