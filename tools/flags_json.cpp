#include "tools/flags_json.h"

#include <nlohmann/json.hpp>
#include <vector>

#include "io/json_text.h"
#include "model_zoo/presets.h"
#include "tools/planned_machine.h"

namespace ebb {
namespace {

using Json = nlohmann::ordered_json;

const char* name_of(Flag::Takes takes) {
  switch (takes) {
    case Flag::Takes::Nothing:
      return "nothing";
    case Flag::Takes::Perhaps:
      return "perhaps";
    case Flag::Takes::One:
      return "one";
    case Flag::Takes::Several:
      return "several";
  }
  return "";
}

std::vector<std::string> names_of_value(const Flag& flag) {
  std::vector<std::string> names;
  if (flag.names.front() == "--preset") {
    for (const Preset& preset : presets()) names.emplace_back(preset.name);
  }
  if (flag.names.front() == "--machine") {
    for (const PlannedMachine& machine : machine_presets()) names.push_back(machine.name);
  }
  return names;
}

Json flag_json(const Flag& flag) {
  return {{"names", flag.names},
          {"value", flag.value},
          {"description", flag.description},
          {"group", flag.group},
          {"takes", name_of(flag.takes)},
          {"names_of_value", names_of_value(flag)}};
}

}  // namespace

std::string flags_json(std::span<const CommandFlags> commands, std::string_view version) {
  Json json = {{"version", version}, {"commands", Json::array()}};
  for (const CommandFlags& command : commands) {
    Json flags = Json::array();
    for (const Flag& flag : command.flags) flags.push_back(flag_json(flag));
    json["commands"].push_back({{"name", command.name},
                                {"summary", command.summary},
                                {"description", command.description},
                                {"flags", flags}});
  }
  return json_text(json, 1) + "\n";
}

}  // namespace ebb
