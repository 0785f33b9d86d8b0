// Shows a step as one self-contained HTML page: streams, chunks on the device, memory by class,
// causes of stalls, predicted and measured times. Pure functions, except write_report().
#pragma once

#include <string>
#include <utility>
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
};

struct Report {
  std::string title;
  std::vector<std::string> facts;                          ///< one line each
  std::vector<std::pair<std::string, std::string>> tiles;  ///< value and label
  std::vector<ReportView> views;                           ///< at least one
};

std::string html_report(const Report& report, const Preparation& prepared);

/// Writes the page to a file. Errors: IoError.
void write_report(const std::string& path, const Report& report, const Preparation& prepared);

/// The simulated timeline of the prepared step on this machine.
ReportView simulated_view(const Preparation& prepared, const Machine& machine);

}  // namespace ebb
