#include "tools/planned_machine.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>

#include "device/errors.h"
#include "tools/machine_presets.h"
#include "tools/machine_rates.h"

namespace ebb {
namespace {

using Json = nlohmann::ordered_json;

class Reader {
 public:
  Reader(std::string_view text, const std::string& path) : path_(path) {
    try {
      json_ = Json::parse(text);
    } catch (const Json::parse_error& error) {
      throw FormatError(path, error.byte, fmt::format("not JSON: {}", error.what()));
    }
    if (!json_.is_object()) throw FormatError(path, 0, "a machine file is one JSON object");
  }

  std::string text(const char* field) const {
    const auto at = json_.find(field);
    if (at == json_.end() || !at->is_string()) refuse(field, "must be a text");
    return at->get<std::string>();
  }

  /// `least` may be the value itself only where that is 0.
  double number(const char* field, bool may_be_0) const {
    const auto at = json_.find(field);
    if (at == json_.end() && may_be_0) return 0;
    if (at == json_.end() || !at->is_number()) refuse(field, "must be a number");
    const double value = at->get<double>();
    if (value < 0 || value > 1e30 || (value == 0 && !may_be_0)) {
      refuse(field, fmt::format("is {:g}: it must be {}", value,
                                may_be_0 ? "at least 0" : "greater than 0"));
    }
    return value;
  }

 private:
  [[noreturn]] void refuse(const char* field, std::string_view what) const {
    throw FormatError(path_, 0, fmt::format("the field '{}' of a machine {}", field, what));
  }

  const std::string& path_;
  Json json_;
};

bool may_be_none(double Machine::*rate) {
  return rate == &Machine::copy_bytes_per_s || rate == &Machine::kernel_s;
}

}  // namespace

PlannedMachine parse_machine(std::string_view text, const std::string& path) {
  const Reader reader(text, path);
  PlannedMachine machine{
      .name = reader.text("name"),
      .device = reader.text("device"),
      .device_memory_bytes = static_cast<size_t>(reader.number("device_memory_bytes", false)),
      .host_memory_bytes = static_cast<size_t>(reader.number("host_memory_bytes", false))};
  for (const RateField& field : rate_fields()) {
    machine.rates.*field.member = reader.number(field.name, may_be_none(field.member));
  }
  return machine;
}

std::string to_json(const PlannedMachine& machine, std::string_view source) {
  Json json, sources;
  json["name"] = machine.name;
  json["device"] = machine.device;
  json["device_memory_bytes"] = machine.device_memory_bytes;
  json["host_memory_bytes"] = machine.host_memory_bytes;
  for (const RateField& field : rate_fields()) {
    json[field.name] = machine.rates.*field.member;
    sources[field.name] = source;
  }
  json["sources"] = sources;
  return json.dump(2) + "\n";
}

std::vector<PlannedMachine> machine_presets() {
  std::vector<PlannedMachine> machines;
  for (const std::string_view text : kMachinePresets) {
    machines.push_back(parse_machine(text, "a preset"));
  }
  return machines;
}

PlannedMachine find_machine(const std::string& name_or_file) {
  std::string names;
  for (PlannedMachine& machine : machine_presets()) {
    if (machine.name == name_or_file) return std::move(machine);
    names += ", " + machine.name;
  }
  errno = 0;
  std::ifstream file(name_or_file);
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  if (!file) {
    throw ConfigError(
        fmt::format("--machine '{}': allowed is this{}, or a machine file", name_or_file, names));
  }
  return parse_machine(text, name_or_file);
}

}  // namespace ebb
