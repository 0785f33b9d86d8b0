#include <fmt/format.h>

#include "model_zoo/presets.h"
#include "tools/cli.h"
#include "tools/commands.h"
#include "tools/size_parse.h"

namespace ebb {

int models_command(std::vector<std::string> arguments) {
  CommandLine line("Lists the presets that `ebb train --preset` knows.", "ebb models");
  if (!parse_arguments(line, std::move(arguments), false)) return 0;
  fmt::print("{:<18} {:>10} {:>7} {:>9} {:>6} {:>10} {:>10}  {}\n", "preset", "parameters",
             "layers", "channels", "heads", "positions", "vocabulary", "description");
  for (const Preset& preset : presets()) {
    const ModelSizes c = sizes_of(preset.config);
    fmt::print("{:<18} {:>10} {:>7} {:>9} {:>6} {:>10} {:>10}  {}\n", preset.name,
               format_count(num_parameters(preset.config)), c.num_layers, c.channels, c.num_heads,
               c.max_positions, c.vocabulary, preset.description);
  }
  return 0;
}

}  // namespace ebb
