// The machine for which `ebb plan` plans: this machine with measured rates, a preset, or a file.
//
// A machine file is JSON: name, device, device_memory_bytes, host_memory_bytes, the rates of
// scheduler/plan/simulate.h's Machine by their names (bytes, seconds), `devices` if there are
// several, `peer_bytes_per_s` if they can read each other's memory, `network_bytes_per_s` and
// `message_s` if there can be several machines, and `shared_cores` if the host is the device, with
// its `num_threads`. A figure is a number; or two, the pessimistic and the optimistic one, where
// sources differ; or an object with one of these as its `value`, and its `source`. The presets are
// such files (tools/machines/), built into the program. Apart from reading files, the functions are
// pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "scheduler/plan/simulate.h"

namespace ebb {

struct PlannedMachine {
  std::string name;    ///< "h200"
  std::string device;  ///< "NVIDIA H200 SXM"
  size_t device_memory_bytes = 0;
  size_t host_memory_bytes = 0;
  int num_threads = 1;  ///< threads of the host, if the host is the device
  int num_devices = 1;  ///< the rates and the memory of a device are those of each
  Machine rates = {};   ///< the pessimistic value of each rate
  /// The optimistic value of each rate; nullopt: no source differs from another.
  std::optional<Machine> optimistic = {};
  std::map<std::string, std::string> sources = {};  ///< by the names of the figures
};

/// The most ranks that train on the machine: one for each device. If the host is the device, one
/// for each of its threads.
uint32_t most_ranks(const PlannedMachine& machine);

std::vector<PlannedMachine> machine_presets();

/// A preset's name, or the path of a machine file; the preset if both exist. The caller handles
/// "this". ConfigError, which suggests a preset and lists
/// all, if the text is neither; FormatError, with the file and the field, for a file that is not a
/// machine's; IoError.
PlannedMachine find_machine(const std::string& name_or_file);

/// The sources of a machine whose rates were all measured here.
std::map<std::string, std::string> measured_sources();

/// The content of a machine file.
std::string to_json(const PlannedMachine& machine);

}  // namespace ebb
