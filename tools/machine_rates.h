// How fast this machine computes, copies and updates: what the planner's choice goes by.
//
// Measured through the device's own kernels and streams in about a second, at most once: the
// numbers are kept in a file of the user's cache folder ($XDG_CACHE_HOME/ebb, or ~/.cache/ebb), one
// for all that they depend on. A file that cannot be read, or is about something else, is measured
// and written again; where none can be written, every run measures.
#pragma once

#include <filesystem>
#include <optional>
#include <span>
#include <string>

#include "device/device.h"
#include "device/dtype.h"
#include "scheduler/plan/simulate.h"

namespace ebb {

/// The numbers of a machine, by the names that files give them.
struct RateField {
  const char* name;
  double Machine::*member;
  bool may_be_0 = false;  ///< where there is no such limit, or it is not known
};
std::span<const RateField> rate_fields();

/// What the numbers depend on.
struct RatesKey {
  std::string cpu;
  std::string device;  ///< as it names itself: with its threads
  Arithmetic arithmetic = Arithmetic::Fp32;
  DType weight_type = DType::BF16;
  DType gradient_type = DType::BF16;
  int num_threads = 1;

  std::string text() const;
};
RatesKey rates_key(const DeviceOptions& options, DType weight_type, DType gradient_type);

struct MachineRates {
  Machine machine;
  double measured_s = 0;            ///< how long that took; 0: it was read
  std::filesystem::path file = {};  ///< where it was read or written; empty: nowhere

  /// "measured in 0.9 s, kept in FILE"
  std::string source() const;
};

/// Measures with a device of these options, but no emulated link, no budget and no pretence; the
/// rates of these stand for what was measured in machine_rates().
Machine measure_machine(const DeviceOptions& options, DType weight_type, DType gradient_type);

/// From the file under `folder`, else measured and kept there.
MachineRates machine_rates(const DeviceOptions& options, DType weight_type, DType gradient_type,
                           const std::filesystem::path& folder);

/// The user's cache folder for Ebb; empty where the environment names none.
std::filesystem::path cache_folder();

/// The file's content, and back; nullopt where the text is not about this key.
std::string to_json(const RatesKey& key, const Machine& machine);
std::optional<Machine> rates_from_json(const std::string& text, const RatesKey& key);

}  // namespace ebb
