// The rates at which this machine computes, copies and updates. The planner predicts from them.
//
// They are measured with the device's own kernels and streams, in about a second. The
// numbers are kept in the user's cache folder ($XDG_CACHE_HOME/ebb, or ~/.cache/ebb), in one file
// for each RatesKey. If a file cannot be read or has another key, the machine is measured again and
// the file is replaced. If no file can be written, every run measures.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>

#include "device/device.h"
#include "device/dtype.h"
#include "scheduler/plan/simulate.h"

namespace ebb {

/// The numbers of a machine and their names in files.
struct RateField {
  const char* name;
  double Machine::*member;
  bool may_be_0 = false;        ///< 0: there is no such limit, or it is unknown
  bool may_be_missing = false;  ///< in a machine file; counts as 0
  bool less_is_faster = false;  ///< a time, not a rate
  bool is_measured = true;      ///< on this machine; otherwise 0 there
  double least = 0, most = 0;

  /// Is the value in the range in which a plan can compute with it? False for NaN.
  bool allows(double value) const;
  /// "a number from 1000 to 1e+21", or 0 beside it.
  std::string range() const;
};
std::span<const RateField> rate_fields();

/// Everything that the numbers depend on.
struct RatesKey {
  std::string cpu;
  std::string device;  ///< the name that the device reports, with its threads
  Arithmetic arithmetic = Arithmetic::Fp32;
  DType weight_type = DType::BF16;
  DType gradient_type = DType::BF16;
  int num_threads = 1;

  std::string text() const;
};
RatesKey rates_key(const DeviceOptions& options, DType weight_type, DType gradient_type);

/// Rates, and how much other processes disturbed their measurement.
struct MeasuredRates {
  Machine machine = {};
  double other_load = 0;  ///< share of the cores that other processes used
};

struct MachineRates {
  Machine machine;
  double other_load = 0;            ///< as in MeasuredRates; 0: rates from `file`
  double measured_s = 0;            ///< duration of the measurement; 0: rates from `file`
  std::filesystem::path file = {};  ///< the file read or written; empty: none

  /// "measured in 0.9 s, kept in FILE"
  std::string source() const;
};

/// Measures with a device of these options, but without emulated link, budget and emulated compute.
/// machine_rates() replaces the measured rates by the emulated rates.
MeasuredRates measure_machine(const DeviceOptions& options, DType weight_type, DType gradient_type);

enum class Kept : uint8_t {
  Use,     ///< the rates of an earlier measurement
  Replace  ///< measure again
};
/// Reads the rates from the file in `folder`, or measures them and writes the file.
MachineRates machine_rates(const DeviceOptions& options, DType weight_type, DType gradient_type,
                           const std::filesystem::path& folder, Kept kept = Kept::Use);

/// The user's cache folder for Ebb; empty if the environment names none.
std::filesystem::path cache_folder();

/// The rate of a kernel's arithmetic without its memory traffic: on cores their times add, so the
/// time of the traffic is subtracted. At most half of `seconds` is, because small tensors can be in
/// caches.
double rate_of_arithmetic(double flops, double seconds, double bytes, double bytes_per_s);

/// Converts to and from the content of a file. nullopt if the text has another key, is no JSON, or
/// if a value is missing or wrong.
std::string to_json(const RatesKey& key, const Machine& machine);
std::optional<Machine> rates_from_json(const std::string& text, const RatesKey& key);

}  // namespace ebb
