// A step as one HTML page that needs nothing else: lanes, chunks on the device, memory by class,
// what compute waited for, predicted beside measured. Pure functions.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "scheduler/run/trainer.h"

namespace ebb {

/// The plan's step as it was measured, or simulated.
struct ReportView {
  std::string name;  ///< "measured"
  double step_s = 0;
  double bound_s = 0;
  std::string bound_by = {};
  std::vector<OpTime> times;  ///< of the plan's operations
};

struct Report {
  std::string title;
  std::vector<std::string> facts;                          ///< a line each
  std::vector<std::pair<std::string, std::string>> tiles;  ///< value and label
  std::vector<ReportView> views;                           ///< at least one
};

std::string html_report(const Report& report, const Preparation& prepared);

/// Writes a file whole. Errors: IoError.
void write_report(const std::string& path, const Report& report, const Preparation& prepared);

/// The prepared step on this machine, as the simulator sees it.
ReportView simulated_view(const Preparation& prepared, const Machine& machine);

}  // namespace ebb
