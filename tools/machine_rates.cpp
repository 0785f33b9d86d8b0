#include "tools/machine_rates.h"

#include <fmt/format.h>

#include <chrono>
#include <cstdlib>
#include <nlohmann/json.hpp>

#include "io/json_text.h"
#include "tools/kept_file.h"
#include "tools/machine.h"
#include "tools/size_parse.h"

namespace ebb {
namespace {

/// Version of the measurement and of the meaning of its numbers. Files of older versions are
/// measured again.
constexpr int kVersion = 7;

constexpr RateField rate(const char* name, double Machine::*member) {
  return {.name = name, .member = member, .least = kLeastRate, .most = kMostRate};
}
constexpr RateField optional(RateField field) {
  field.may_be_0 = field.may_be_missing = true;
  return field;
}

constexpr RateField not_measured(RateField field) {
  field.is_measured = false;
  return field;
}

constexpr RateField kFields[] = {
    rate("flops_per_s", &Machine::flops_per_s),
    optional(rate("narrow_flops_per_s", &Machine::narrow_flops_per_s)),
    rate("attention_flops_per_s", &Machine::attention_flops_per_s),
    optional(rate("attention_backward_flops_per_s", &Machine::attention_backward_flops_per_s)),
    rate("vector_flops_per_s", &Machine::vector_flops_per_s),
    {.name = "kernel_s",
     .member = &Machine::kernel_s,
     .may_be_0 = true,
     .less_is_faster = true,
     .least = 0,
     .most = 1e3},
    rate("device_bytes_per_s", &Machine::device_bytes_per_s),
    rate("load_bytes_per_s", &Machine::load_bytes_per_s),
    rate("store_bytes_per_s", &Machine::store_bytes_per_s),
    rate("update_bytes_per_s", &Machine::update_bytes_per_s),
    optional(rate("copy_bytes_per_s", &Machine::copy_bytes_per_s)),
    not_measured(optional(rate("peer_bytes_per_s", &Machine::peer_bytes_per_s))),
    not_measured(optional(rate("host_bytes_per_s", &Machine::host_bytes_per_s))),
    not_measured(optional(rate("network_bytes_per_s", &Machine::network_bytes_per_s))),
    not_measured(optional({.name = "message_s",
                           .member = &Machine::message_s,
                           .less_is_faster = true,
                           .least = 0,
                           .most = 1e3}))};

/// The rates of an emulated link and of emulated compute replace the measured ones.
Machine as_emulated(Machine machine, const DeviceOptions& options) {
  if (options.load_bytes_per_s > 0) machine.load_bytes_per_s = options.load_bytes_per_s;
  if (options.store_bytes_per_s > 0) machine.store_bytes_per_s = options.store_bytes_per_s;
  if (options.emulate_compute) {
    machine.flops_per_s = options.emulate_compute->flops_per_s;
    machine.device_bytes_per_s = options.emulate_compute->bytes_per_s;
    machine.narrow_flops_per_s = machine.attention_backward_flops_per_s = 0;
    machine.attention_flops_per_s = machine.vector_flops_per_s = machine.kernel_s = 0;
    machine.emulate_compute = true;
  }
  return machine;
}

}  // namespace

bool RateField::allows(double value) const {
  return (may_be_0 && value == 0) || (value >= least && value <= most);
}

std::string RateField::range() const {
  return fmt::format("{}a number from {} to {}", may_be_0 && least > 0 ? "0, or " : "", least,
                     most);
}

std::span<const RateField> rate_fields() { return kFields; }

RatesKey rates_key(const DeviceOptions& options, DType weight_type, DType gradient_type) {
  const MachineInfo here = read_machine();
  DeviceOptions plain = options;
  plain.memory_bytes = SIZE_MAX;
  const DeviceInfo info = create_device(plain)->info();
  return {.cpu = here.cpu,
          .device = info.name,
          .arithmetic = info.arithmetic,
          .weight_type = weight_type,
          .gradient_type = gradient_type,
          .num_threads = info.profile.num_threads};
}

std::string RatesKey::text() const {
  return fmt::format("{}; {}; {} threads; {} arithmetic; {} weights, {} gradients; version {}", cpu,
                     device, num_threads, name_of(arithmetic), name_of(weight_type),
                     name_of(gradient_type), kVersion);
}

std::string MachineRates::source() const {
  if (measured_s == 0) return "from " + file.string();
  const std::string kept = file.empty() ? "" : ", kept in " + file.string();
  return fmt::format("measured in {:.1f} s{}", measured_s, kept);
}

std::string to_json(const RatesKey& key, const Machine& machine) {
  nlohmann::ordered_json json;
  json["of"] = key.text();
  for (const RateField& field : kFields) json[field.name] = machine.*field.member;
  json["shared_cores"] = machine.shared_cores;
  return json_text(json, 2) + "\n";
}

std::optional<Machine> rates_from_json(const std::string& text, const RatesKey& key) {
  const auto json = parse_json_or_discard(text);
  if (!json.is_object() || !json.contains("of") || json["of"] != key.text()) return std::nullopt;
  Machine machine;
  for (const RateField& field : kFields) {
    const auto at = json.find(field.name);
    if (at == json.end() || !at->is_number()) return std::nullopt;
    machine.*field.member = at->get<double>();
    if (!field.allows(machine.*field.member)) return std::nullopt;
  }
  const auto shared = json.find("shared_cores");
  if (shared == json.end() || !shared->is_boolean()) return std::nullopt;
  machine.shared_cores = shared->get<bool>();
  return machine;
}

std::filesystem::path cache_folder() {
  const char* const cache = std::getenv("XDG_CACHE_HOME");
  if (cache != nullptr && *cache == '/') return std::filesystem::path(cache) / "ebb";
  const char* const home = std::getenv("HOME");
  if (home != nullptr && *home == '/') return std::filesystem::path(home) / ".cache" / "ebb";
  return {};
}

MachineRates machine_rates(const DeviceOptions& options, DType weight_type, DType gradient_type,
                           const std::filesystem::path& folder, Kept kept) {
  const RatesKey key = rates_key(options, weight_type, gradient_type);
  MachineRates rates;
  if (!folder.empty()) {
    rates.file = kept_file(folder, "machine", key.text());
    const auto found =
        kept == Kept::Use ? rates_from_json(read_kept(rates.file), key) : std::optional<Machine>();
    if (found) {
      rates.machine = as_emulated(*found, options);
      return rates;
    }
  }
  const auto start = std::chrono::steady_clock::now();
  const MeasuredRates measured = measure_machine(options, weight_type, gradient_type);
  rates.measured_s =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  if (!folder.empty() && !write_kept(rates.file, to_json(key, measured.machine)))
    rates.file.clear();
  rates.machine = as_emulated(measured.machine, options);
  rates.other_load = measured.other_load;
  return rates;
}

}  // namespace ebb
