#include <fmt/format.h>

#include <algorithm>
#include <span>
#include <string>

#include "device/errors.h"
#include "model_zoo/presets.h"
#include "tools/cli.h"
#include "tools/commands.h"
#include "tools/completion.h"
#include "tools/flag_values.h"
#include "tools/man_page.h"
#include "tools/planned_machine.h"

namespace ebb {
namespace {

using Script = std::string (*)(std::span<const CommandFlags>);
constexpr Choice<Script> kShells[] = {
    {"bash", bash_completion}, {"zsh", zsh_completion}, {"fish", fish_completion}};

/// Names that are known without reading from this machine.
void add_known_names(CommandFlags& command) {
  for (Flag& flag : command.flags) {
    if (flag.names.front() == "--preset") {
      for (const Preset& preset : presets()) flag.choices.emplace_back(preset.name);
    }
    if (flag.names.front() == "--machine") {
      for (const PlannedMachine& machine : machine_presets()) flag.choices.push_back(machine.name);
    }
  }
}

}  // namespace

int completion_command(std::vector<std::string> arguments) {
  CommandLine line("Prints the completion script of a shell: source <(ebb completion bash)",
                   "ebb completion");
  Script script = nullptr;
  FlagGroup{line, "Shell"}.add("SHELL", "bash|zsh|fish", "whose script to print",
                               [&script](std::string_view flag, std::string_view text) {
                                 script = choice_value<Script>(flag, text, kShells);
                               });
  if (!parse_arguments(line, std::move(arguments), false)) return 0;
  if (script == nullptr) throw ConfigError("SHELL is missing: allowed is bash, zsh, fish");
  std::vector<CommandFlags> commands = described_commands();
  std::ranges::for_each(commands, add_known_names);
  fmt::print("{}", script(commands));
  return 0;
}

int man_command(std::vector<std::string> arguments) {
  CommandLine line("Prints the manual: ebb man | man -l -", "ebb man");
  if (!parse_arguments(line, std::move(arguments), false)) return 0;
  fmt::print("{}", man_page(described_commands(), EBB_VERSION));
  return 0;
}

}  // namespace ebb
