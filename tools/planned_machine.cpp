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
#include "tools/nearest_name.h"

namespace ebb {
namespace {

using Json = nlohmann::ordered_json;

constexpr int kMostCount = 4096;                 // of threads and of devices
constexpr double kMostBytes = 9007199254740992;  // 2^53: up to here fp64 has every whole number

/// Other names of presets.
constexpr std::pair<std::string_view, std::string_view> kOtherNames[] = {{"a100", "a100-80gb"}};

/// Fields besides the rates.
constexpr const char* kName = "name";
constexpr const char* kDevice = "device";
constexpr const char* kDeviceMemory = "device_memory_bytes";
constexpr const char* kHostMemory = "host_memory_bytes";
constexpr const char* kSharedCores = "shared_cores";
constexpr const char* kNumThreads = "num_threads";
constexpr const char* kDevices = "devices";

/// Both ends of a figure. They are equal unless sources differ.
struct Ends {
  double pessimistic = 0, optimistic = 0;
};

class Reader {
 public:
  /// REQUIRES: `json` is an object.
  Reader(const Json& json, const std::string& path) : json_(json), path_(path) {}

  /// Throws FormatError for a field that is not known, and for fields that are missing.
  void check_names() const {
    std::vector<std::string> known = {kName, kDevice, kDeviceMemory, kHostMemory};
    std::vector<std::string> missing;
    const auto require = [&](const std::string& name) {
      if (!json_.contains(name)) missing.push_back(name);
    };
    for (const std::string& name : known) require(name);
    for (const RateField& field : rate_fields()) {
      if (!field.may_be_missing) require(field.name);
      known.emplace_back(field.name);
    }
    known.insert(known.end(), {kSharedCores, kNumThreads, kDevices});
    for (const auto& [name, value] : json_.items()) {
      if (std::ranges::find(known, name) == known.end()) refuse_unknown(name, known);
    }
    if (missing.empty()) return;
    throw FormatError(path_, 0,
                      fmt::format("a machine file must have the field{} '{}'",
                                  missing.size() > 1 ? "s" : "", fmt::join(missing, "', '")));
  }

  std::string text(const char* field) const {
    const auto at = json_.find(field);
    if (at == json_.end() || !at->is_string()) refuse(field, "must be a text");
    return at->get<std::string>();
  }

  Ends rate(const RateField& field) const {
    if (!json_.contains(field.name)) return {};
    const Ends ends = figure(field.name);
    for (const double value : {ends.pessimistic, ends.optimistic}) {
      if (!field.allows(value)) {
        refuse(field.name, fmt::format("is {}: it must be {}", value, field.range()));
      }
    }
    const bool in_order = field.less_is_faster ? ends.pessimistic >= ends.optimistic
                                               : ends.pessimistic <= ends.optimistic;
    if (in_order) return ends;
    refuse(field.name, fmt::format("is [{}, {}]: the pessimistic value comes first, so it must be "
                                   "the {} one",
                                   ends.pessimistic, ends.optimistic,
                                   field.less_is_faster ? "larger" : "smaller"));
  }

  size_t bytes(const char* field) const { return static_cast<size_t>(whole(field, kMostBytes)); }

  /// 1 if there is no such field.
  int count(const char* field) const {
    return json_.contains(field) ? static_cast<int>(whole(field, kMostCount)) : 1;
  }

  /// False if there is no such field.
  bool flag(const char* field) const {
    const auto at = json_.find(field);
    if (at == json_.end()) return false;
    if (!at->is_boolean()) refuse(field, "must be true or false");
    return at->get<bool>();
  }

  /// A file need not state the sources of its numbers.
  std::map<std::string, std::string> sources() const {
    std::map<std::string, std::string> found;
    for (const auto& [field, figure] : json_.items()) {
      if (!figure.is_object() || !figure.contains("source")) continue;
      if (!figure["source"].is_string()) refuse(field, "must have a text as its source");
      found.emplace(field, figure["source"].template get<std::string>());
    }
    return found;
  }

 private:
  /// A whole number from 1 to `most`.
  double whole(const char* field, double most) const {
    const Ends ends = figure(field);
    if (ends.pessimistic != ends.optimistic) refuse(field, "must be one number");
    const double value = ends.pessimistic;
    if (value >= 1 && value == std::floor(value) && value <= most) return value;
    refuse(field,
           fmt::format("is {:.17g}: it must be a whole number from 1 to {:.17g}", value, most));
  }

  Ends figure(const char* field) const {
    const Json& whole = json_[field];
    const Json& value = whole.is_object() && whole.contains("value") ? whole["value"] : whole;
    if (value.is_number()) return {value.get<double>(), value.get<double>()};
    if (value.is_array() && value.size() == 2 && value[0].is_number() && value[1].is_number()) {
      return {value[0].get<double>(), value[1].get<double>()};
    }
    refuse(field,
           "must be a number, or [pessimistic, optimistic], or {\"value\": one of these, "
           "\"source\": a text}");
  }

  [[noreturn]] void refuse_unknown(const std::string& name,
                                   const std::vector<std::string>& known) const {
    const std::string meant = nearest_name(name, known);
    if (!meant.empty()) refuse(name, fmt::format("is not known; did you mean '{}'?", meant));
    refuse(name, fmt::format("is not known; known are '{}'", fmt::join(known, "', '")));
  }

  [[noreturn]] void refuse(std::string_view field, std::string_view what) const {
    throw FormatError(path_, 0, fmt::format("the field '{}' of a machine {}", field, what));
  }

  const Json& json_;
  const std::string& path_;
};

PlannedMachine machine_of(const Json& json, const std::string& path) {
  const Reader reader(json, path);
  reader.check_names();
  PlannedMachine machine{.name = reader.text(kName),
                         .device = reader.text(kDevice),
                         .device_memory_bytes = reader.bytes(kDeviceMemory),
                         .host_memory_bytes = reader.bytes(kHostMemory)};
  machine.rates.shared_cores = reader.flag(kSharedCores);
  Machine optimistic = machine.rates;
  bool differ = false;
  for (const RateField& field : rate_fields()) {
    const Ends ends = reader.rate(field);
    machine.rates.*field.member = ends.pessimistic;
    optimistic.*field.member = ends.optimistic;
    differ = differ || ends.pessimistic != ends.optimistic;
  }
  if (differ) machine.optimistic = optimistic;
  machine.num_threads = reader.count(kNumThreads);
  machine.num_devices = reader.count(kDevices);
  machine.sources = reader.sources();
  return machine;
}

Json figure_json(double pessimistic, double optimistic) {
  if (pessimistic == optimistic) return pessimistic;
  return {pessimistic, optimistic};
}

}  // namespace

std::string to_json(const PlannedMachine& machine) {
  std::vector<std::string> lines;
  const auto line = [&lines](const char* name, const std::string& text) {
    lines.push_back(fmt::format("  \"{}\": {}", name, text));
  };
  const auto figure = [&](const char* name, const Json& value) {
    const auto source = machine.sources.find(name);
    line(name, source == machine.sources.end()
                   ? json_text(value)
                   : fmt::format("{{\"value\": {}, \"source\": {}}}", json_text(value),
                                 json_text(Json(source->second))));
  };
  line(kName, json_text(Json(machine.name)));
  line(kDevice, json_text(Json(machine.device)));
  figure(kDeviceMemory, machine.device_memory_bytes);
  figure(kHostMemory, machine.host_memory_bytes);
  const Machine& optimistic = machine.optimistic ? *machine.optimistic : machine.rates;
  for (const RateField& field : rate_fields()) {
    figure(field.name, figure_json(machine.rates.*field.member, optimistic.*field.member));
  }
  line(kSharedCores, machine.rates.shared_cores ? "true" : "false");
  figure(kNumThreads, machine.num_threads);
  if (machine.num_devices > 1) figure(kDevices, machine.num_devices);
  return fmt::format("{{\n{}\n}}\n", fmt::join(lines, ",\n"));
}

uint32_t most_ranks(const PlannedMachine& machine) {
  const bool on_host = machine.rates.shared_cores;
  return static_cast<uint32_t>(on_host ? machine.num_threads : machine.num_devices);
}

std::map<std::string, std::string> measured_sources() {
  std::map<std::string, std::string> sources;
  for (const RateField& field : rate_fields()) {
    if (!field.is_measured) continue;
    sources.emplace(field.name, "measured by `ebb plan --machine this`");
  }
  return sources;
}

std::vector<PlannedMachine> machine_presets() {
  std::vector<PlannedMachine> machines;
  for (const std::string_view text : kMachinePresets) {
    machines.push_back(machine_of(parse_ordered_json(text), "a preset"));
  }
  return machines;
}

PlannedMachine find_machine(const std::string& name_or_file) {
  const auto other = std::ranges::find(kOtherNames, std::string_view(name_or_file),
                                       &std::pair<std::string_view, std::string_view>::first);
  const std::string name(other != std::end(kOtherNames) ? other->second : name_or_file);
  std::vector<std::string> names = {"this"};
  for (PlannedMachine& machine : machine_presets()) {
    if (machine.name == name) return std::move(machine);
    names.push_back(machine.name);
  }
  std::error_code ignored;  // a name that is no path is no file
  if (std::filesystem::is_regular_file(name_or_file, ignored)) {
    return machine_of(read_ordered_json_file(name_or_file), name_or_file);
  }
  const std::string meant = nearest_name(name_or_file, names);
  throw ConfigError(fmt::format(
      "--machine '{}': {}allowed is {}, or a machine file. For another GPU, write one with "
      "`ebb plan --machine {} --write-machine FILE`, and change its rates",
      name_or_file, meant.empty() ? "" : fmt::format("did you mean {}? ", meant),
      fmt::join(names, ", "), meant.empty() || meant == "this" ? "rtx4090" : meant));
}

}  // namespace ebb
