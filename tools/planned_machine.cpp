#include "tools/planned_machine.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <vector>

#include "device/errors.h"
#include "io/json_file.h"
#include "io/json_text.h"
#include "tools/machine_presets.h"
#include "tools/machine_rates.h"

namespace ebb {
namespace {

using Json = nlohmann::ordered_json;

constexpr int kMostThreads = 4096;
constexpr double kMostBytes = 9007199254740992;  // 2^53: up to here fp64 has every whole number

class Reader {
 public:
  /// REQUIRES: `json` is an object.
  Reader(const Json& json, const std::string& path) : json_(json), path_(path) {}

  void require_known() const {
    std::vector<std::string> known = {
        "name",        "device", "device_memory_bytes", "host_memory_bytes", "shared_cores",
        "num_threads", "sources"};
    for (const RateField& field : rate_fields()) known.emplace_back(field.name);
    for (const auto& [name, value] : json_.items()) {
      if (std::ranges::find(known, name) != known.end()) continue;
      refuse(name, fmt::format("is not known; known are '{}'", fmt::join(known, "', '")));
    }
  }

  std::string text(const char* field) const {
    const auto at = json_.find(field);
    if (at == json_.end() || !at->is_string()) refuse(field, "must be a text");
    return at->get<std::string>();
  }

  /// A field that may be 0 may also be missing.
  double rate(const RateField& field) const {
    if (field.may_be_0 && !json_.contains(field.name)) return 0;
    const double value = number(field.name);
    if (field.allows(value)) return value;
    refuse(field.name, fmt::format("is {}: it must be {}", value, field.range()));
  }

  size_t bytes(const char* field) const { return static_cast<size_t>(whole(field, kMostBytes)); }

  /// 1 if there is no such field.
  int count(const char* field) const {
    return json_.contains(field) ? static_cast<int>(whole(field, kMostThreads)) : 1;
  }

  /// False if there is no such field.
  bool flag(const char* field) const {
    const auto at = json_.find(field);
    if (at == json_.end()) return false;
    if (!at->is_boolean()) refuse(field, "must be true or false");
    return at->get<bool>();
  }

  /// Only texts. A file need not state the sources of its numbers.
  std::vector<std::pair<std::string, std::string>> sources() const {
    std::vector<std::pair<std::string, std::string>> found;
    const auto at = json_.find("sources");
    if (at == json_.end() || !at->is_object()) return {{"all", "not stated in " + path_}};
    for (const auto& [field, source] : at->items()) {
      if (source.is_string()) found.emplace_back(field, source.get<std::string>());
    }
    return found;
  }

 private:
  /// A whole number from 1 to `most`.
  double whole(const char* field, double most) const {
    const double value = number(field);
    if (value >= 1 && value == std::floor(value) && value <= most) return value;
    refuse(field,
           fmt::format("is {:.17g}: it must be a whole number from 1 to {:.17g}", value, most));
  }
  double number(const char* field) const {
    const auto at = json_.find(field);
    if (at == json_.end() || !at->is_number()) refuse(field, "must be a number");
    return at->get<double>();
  }
  [[noreturn]] void refuse(std::string_view field, std::string_view what) const {
    throw FormatError(path_, 0, fmt::format("the field '{}' of a machine {}", field, what));
  }

  const Json& json_;
  const std::string& path_;
};

PlannedMachine machine_of(const Json& json, const std::string& path) {
  const Reader reader(json, path);
  reader.require_known();
  PlannedMachine machine{.name = reader.text("name"),
                         .device = reader.text("device"),
                         .device_memory_bytes = reader.bytes("device_memory_bytes"),
                         .host_memory_bytes = reader.bytes("host_memory_bytes")};
  for (const RateField& field : rate_fields()) {
    machine.rates.*field.member = reader.rate(field);
  }
  machine.rates.shared_cores = reader.flag("shared_cores");
  machine.num_threads = reader.count("num_threads");
  machine.sources = reader.sources();
  return machine;
}

}  // namespace

std::string to_json(const PlannedMachine& machine) {
  Json json, sources = Json::object();
  json["name"] = machine.name;
  json["device"] = machine.device;
  json["device_memory_bytes"] = machine.device_memory_bytes;
  json["host_memory_bytes"] = machine.host_memory_bytes;
  for (const RateField& field : rate_fields()) {
    json[field.name] = machine.rates.*field.member;
    if (machine.sources.empty()) sources[field.name] = "measured by `ebb plan --machine this`";
  }
  json["shared_cores"] = machine.rates.shared_cores;
  json["num_threads"] = machine.num_threads;
  for (const auto& [field, source] : machine.sources) sources[field] = source;
  json["sources"] = sources;
  return json_text(json, 2) + "\n";
}

std::vector<PlannedMachine> machine_presets() {
  std::vector<PlannedMachine> machines;
  for (const std::string_view text : kMachinePresets) {
    machines.push_back(machine_of(parse_ordered_json(text), "a preset"));
  }
  return machines;
}

PlannedMachine find_machine(const std::string& name_or_file) {
  std::string names;
  for (PlannedMachine& machine : machine_presets()) {
    if (machine.name == name_or_file) return std::move(machine);
    names += ", " + machine.name;
  }
  if (!std::filesystem::is_regular_file(name_or_file)) {
    throw ConfigError(
        fmt::format("--machine '{}': allowed is this{}, or a machine file", name_or_file, names));
  }
  return machine_of(read_ordered_json_file(name_or_file), name_or_file);
}

}  // namespace ebb
