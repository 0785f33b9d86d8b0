#include "tools/traffic_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <iterator>

#include "device/errors.h"

namespace ebb {
namespace {

std::string bytes_or_dash(uint64_t bytes) { return bytes > 0 ? format_bytes(bytes) : "-"; }

std::string count_or_dash(uint64_t count) { return count > 0 ? fmt::to_string(count) : "-"; }

std::string traffic_row(const std::string& name, const MovedBytes& moved) {
  return fmt::format("  {:<28} {:>7} {:>12} {:>7} {:>12}\n", name, count_or_dash(moved.loads),
                     bytes_or_dash(moved.loaded_bytes), count_or_dash(moved.stores),
                     bytes_or_dash(moved.stored_bytes));
}

std::string layer_row(const StepNames::LayerTraffic& row) {
  const auto bytes = [&](TrafficClass c) { return row.by_class[static_cast<int>(c)].bytes(); };
  const uint64_t gradients = bytes(TrafficClass::GradientSums) + bytes(TrafficClass::Gradients);
  const uint64_t weights = bytes(TrafficClass::Weights) + bytes(TrafficClass::State);
  return fmt::format("  {:<28} {:>12} {:>12} {:>12} {:>12}\n", row.layer, bytes_or_dash(weights),
                     bytes_or_dash(gradients), bytes_or_dash(bytes(TrafficClass::Activations)),
                     format_bytes(row.total().bytes()));
}

/// "weights 12 GiB first use, 12 GiB evicted; activations 9 GiB evicted"
std::string reasons_text(const Traffic& traffic, uint64_t MovedBytes::*bytes) {
  std::string text;
  for (int c = 0; c < kNumTrafficClasses; ++c) {
    const auto traffic_class = static_cast<TrafficClass>(c);
    if (traffic.of(traffic_class).*bytes == 0) continue;
    fmt::format_to(std::back_inserter(text), "{}{}", text.empty() ? ": " : "; ",
                   name_of(traffic_class));
    std::string_view gap = " ";
    for (int r = 0; r < kNumMoveReasons; ++r) {
      const auto reason = static_cast<MoveReason>(r);
      const uint64_t amount = traffic.of(traffic_class, reason).*bytes;
      if (amount == 0) continue;
      fmt::format_to(std::back_inserter(text), "{}{} {}", gap, format_bytes(amount),
                     name_of(reason));
      gap = ", ";
    }
  }
  return text;
}

/// The name without the number at its end.
std::string_view without_number(std::string_view layer) {
  while (!layer.empty() && std::isdigit(static_cast<unsigned char>(layer.back())) != 0) {
    layer.remove_suffix(1);
  }
  return layer;
}

/// "wte 300 MiB, h.0 to h.11 from 12 MiB to 14 MiB each": layers that differ only in their number
/// are summed up.
std::string layers_text(std::span<const StepNames::LayerTraffic> layers) {
  std::string text;
  for (size_t first = 0, end = 0; first < layers.size(); first = end) {
    const std::string_view name = without_number(layers[first].layer);
    uint64_t least = UINT64_MAX, most = 0;
    for (; end < layers.size() && without_number(layers[end].layer) == name; ++end) {
      const uint64_t bytes = layers[end].total().bytes();
      least = std::min(least, bytes);
      most = std::max(most, bytes);
    }
    if (most == 0) continue;
    const auto out = std::back_inserter(text);
    const bool several = end - first > 1;
    fmt::format_to(out, "{}{}", text.empty() ? "" : ", ", layers[first].layer);
    if (several) fmt::format_to(out, " to {}", layers[end - 1].layer);
    if (least == most) fmt::format_to(out, " {}", format_bytes(most));
    if (least != most)
      fmt::format_to(out, " from {} to {}", format_bytes(least), format_bytes(most));
    if (several) fmt::format_to(out, " each");
  }
  return text;
}

}  // namespace

std::string traffic_table(const Traffic& traffic) {
  std::string text = fmt::format("  {:<28} {:>7} {:>12} {:>7} {:>12}\n", "traffic of a step",
                                 "loads", "loaded", "stores", "stored");
  for (const TrafficRow& row : traffic.rows()) {
    text += traffic_row(fmt::format("{}, {}", name_of(row.traffic_class), name_of(row.reason)),
                        row.moved);
  }
  return text + traffic_row("total", traffic.total());
}

std::vector<std::string> traffic_reasons(const Traffic& traffic) {
  std::vector<std::string> lines;
  const auto add = [&](std::string_view what, uint64_t MovedBytes::*bytes) {
    const std::string reasons = reasons_text(traffic, bytes);
    if (!reasons.empty()) lines.push_back(fmt::format("{}{}", what, reasons));
  };
  add("loads", &MovedBytes::loaded_bytes);
  add("stores", &MovedBytes::stored_bytes);
  return lines;
}

std::string layer_table(const StepNames& names) {
  std::string text = fmt::format("  {:<28} {:>12} {:>12} {:>12} {:>12}\n", "layer", "weights",
                                 "gradients", "activations", "loaded+stored");
  StepNames::LayerTraffic sum{.layer = "total"};
  for (const StepNames::LayerTraffic& row : names.traffic_by_layer()) {
    text += layer_row(row);
    for (int c = 0; c < kNumTrafficClasses; ++c) sum.by_class[c] += row.by_class[c];
  }
  return text + layer_row(sum);
}

std::string traffic_lines(const Preparation& prepared) {
  const Traffic traffic = traffic_of(prepared.plan, *prepared.layout);
  const MovedBytes total = traffic.total();
  if (total.is_empty()) return "";
  const StepNames names(prepared.plan, prepared.trace, *prepared.layout);
  return fmt::format(
      "loads {} a step{}\nstores {} a step{}\nlayers {}\n", format_bytes(total.loaded_bytes),
      reasons_text(traffic, &MovedBytes::loaded_bytes), format_bytes(total.stored_bytes),
      reasons_text(traffic, &MovedBytes::stored_bytes), layers_text(names.traffic_by_layer()));
}

}  // namespace ebb
