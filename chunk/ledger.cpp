#include "chunk/ledger.h"

#include <fmt/format.h>

#include "device/errors.h"

namespace ebb {

std::string_view name_of(Tier tier) {
  static constexpr std::string_view kNames[] = {"none", "host", "device"};
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
  std::string text;
  for (Tier tier : {Tier::Device, Tier::Host}) {
    for (const LedgerEntry& e : entries_) {
      if (e.tier != tier) continue;
      text += fmt::format("  {:<7} {:<26} {:>12}\n", name_of(tier), e.name, format_bytes(e.bytes));
    }
    text +=
        fmt::format("  {:<7} {:<26} {:>12}\n", name_of(tier), "total", format_bytes(total(tier)));
  }
  return text;
}

}  // namespace ebb
