#include "chunk/ledger.h"

#include <fmt/format.h>

#include <algorithm>

#include "device/errors.h"

namespace ebb {

std::string_view name_of(Tier tier) {
  static constexpr std::string_view kNames[] = {"none", "host", "device", "peer"};
  return kNames[static_cast<int>(tier)];
}

void Ledger::add(std::string_view name, Tier tier, size_t bytes) {
  if (bytes > 0) entries_.push_back({std::string(name), tier, bytes});
}

size_t Ledger::total(Tier tier) const {
  size_t sum = 0;
  for (const LedgerEntry& e : entries_) sum += e.tier == tier ? e.bytes : 0;
  return sum;
}

size_t Ledger::bytes(std::string_view name, Tier tier) const {
  size_t sum = 0;
  for (const LedgerEntry& e : entries_) sum += e.tier == tier && e.name == name ? e.bytes : 0;
  return sum;
}

std::string Ledger::table() const {
  std::vector<std::string_view> names;
  for (const LedgerEntry& e : entries_) {
    if (std::ranges::find(names, e.name) == names.end()) names.push_back(e.name);
  }
  const auto line = [](std::string_view name, size_t device, size_t host) {
    const auto cell = [](size_t bytes) { return bytes > 0 ? format_bytes(bytes) : "-"; };
    return fmt::format("  {:<28} {:>12} {:>12}\n", name, cell(device), cell(host));
  };
  std::string text = fmt::format("  {:<28} {:>12} {:>12}\n", "memory", "device", "host");
  for (const std::string_view name : names) {
    text += line(name, bytes(name, Tier::Device), bytes(name, Tier::Host));
  }
  return text + line("total", total(Tier::Device), total(Tier::Host));
}

}  // namespace ebb
