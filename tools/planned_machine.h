// The machine for which `ebb plan` plans: this machine with measured rates, a preset, or a file.
//
// A machine file is JSON: name, device, device_memory_bytes, host_memory_bytes, the rates of
// scheduler/plan/simulate.h's Machine by their names (bytes, seconds), `shared_cores` if the
// host is the device, with its `num_threads`, and `sources`, which says where each number comes
// from. The presets are such files (tools/machines/), built into the program; their sources
// say which numbers are assumed. Apart from reading files, the functions are pure.
#pragma once

#include <cstddef>
#include <string>
#include <utility>
#include <vector>

#include "scheduler/plan/simulate.h"

namespace ebb {

struct PlannedMachine {
  std::string name;    ///< "h200"
  std::string device;  ///< "NVIDIA H200 SXM"
  size_t device_memory_bytes = 0;
  size_t host_memory_bytes = 0;
  int num_threads = 1;  ///< threads of the host, if the host is the device
  Machine rates = {};
  /// The source of each number; empty: all were measured on this machine.
  std::vector<std::pair<std::string, std::string>> sources = {};
};

std::vector<PlannedMachine> machine_presets();

/// A preset's name, or the path of a machine file. ConfigError, which lists the presets, if the
/// text is neither; FormatError, with the file and the field, for a file that is not a machine's;
/// IoError.
PlannedMachine find_machine(const std::string& name_or_file);

/// The content of a machine file.
std::string to_json(const PlannedMachine& machine);

}  // namespace ebb
