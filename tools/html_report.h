// Shows a step as one self-contained HTML page: where its time and its traffic went, streams,
// chunks on the device, memory by class, predicted and measured times. Pure functions, except
// write_report().
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "scheduler/run/trainer.h"

namespace ebb {

/// One timeline of the planned step, measured or simulated.
struct ReportView {
  std::string name;  ///< "measured"
  double step_s = 0;
  double bound_s = 0;
  std::string bound_by = {};
  std::vector<OpTime> times;  ///< one for each operation of the plan
  /// Seconds in which kernels ran. The other time of the operations of the compute stream counts as
  /// waiting for the program. Not set: all of it is kernels.
  std::optional<double> kernels_s = {};
};

/// A number at the top of the page, which writes it as its tables do.
struct ReportTile {
  std::string label;
  double value = 0;
  std::string unit = {};  ///< "s", "%", "bytes", or empty for a count
};

struct Report {
  std::string title;
  std::vector<std::string> facts;  ///< one line each
  uint64_t tokens_per_step = 0;
  /// The page adds those of the view that it shows: time, bound, tokens, waiting, bytes.
  std::vector<ReportTile> tiles;
  std::vector<ReportView> views;  ///< at least one
};

std::string html_report(const Report& report, const Preparation& prepared);

/// Writes the page to a file. Errors: IoError.
void write_report(const std::string& path, const Report& report, const Preparation& prepared);

/// The simulated timeline of the prepared step on this machine.
ReportView simulated_view(const Preparation& prepared, const Machine& machine);

}  // namespace ebb
