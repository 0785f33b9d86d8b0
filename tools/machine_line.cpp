#include "tools/machine_line.h"

#include <fmt/format.h>

namespace ebb {
namespace {

/// "3.2", or "3.2 to 4" where the ends differ.
std::string ends_text(double pessimistic, double optimistic, int digits = 3) {
  const auto text = [digits](double value) {
    return value < 1000 ? fmt::format("{:.{}g}", value, digits) : fmt::format("{:.0f}", value);
  };
  const std::string first = text(pessimistic), second = text(optimistic);
  return first == second ? first : first + " to " + second;
}

/// "720 TFLOP/s", "150 to 170 TFLOP/s"
std::string flops_text(double pessimistic, double optimistic) {
  const bool tera = pessimistic >= 1e13;
  const double unit = tera ? 1e12 : 1e9;
  return fmt::format("{} {}FLOP/s", ends_text(pessimistic / unit, optimistic / unit, 4),
                     tera ? 'T' : 'G');
}

std::string compute_line(const Machine& m, const Machine& optimistic) {
  if (m.emulate_compute) return flops_text(m.flops_per_s, optimistic.flops_per_s) + " emulated";
  return fmt::format("{} in matrix products, {} in attention, {} GB/s memory",
                     flops_text(m.flops_per_s, optimistic.flops_per_s),
                     flops_text(m.attention_flops_per_s, optimistic.attention_flops_per_s),
                     ends_text(m.device_bytes_per_s / 1e9, optimistic.device_bytes_per_s / 1e9));
}

}  // namespace

std::string machine_line(const Machine& m, const std::optional<Machine>& optimistic) {
  const Machine& best = optimistic ? *optimistic : m;
  const auto gigabytes = [&](double Machine::*rate) {
    return ends_text(m.*rate / 1e9, best.*rate / 1e9);
  };
  return fmt::format("{}; GB/s: {} up, {} down, {} update{}{}{}", compute_line(m, best),
                     gigabytes(&Machine::load_bytes_per_s), gigabytes(&Machine::store_bytes_per_s),
                     gigabytes(&Machine::update_bytes_per_s),
                     m.copy_bytes_per_s > 0
                         ? fmt::format(", {:.3g} if all cores copied", m.copy_bytes_per_s / 1e9)
                         : "",
                     m.host_bytes_per_s > 0
                         ? fmt::format(", {} in host memory", gigabytes(&Machine::host_bytes_per_s))
                         : "",
                     m.network_bytes_per_s > 0
                         ? fmt::format(", {} network", gigabytes(&Machine::network_bytes_per_s))
                         : "");
}

}  // namespace ebb
