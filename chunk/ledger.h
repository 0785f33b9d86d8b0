// The ledger: all bytes of a run by class and tier. They are planned before step 0 and allocated at
// set-up.
//
// A plain value: not thread-safe, copied freely.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace ebb {

/// None: nowhere. A move from None allocates. Peer: memory that belongs to a rank and that others
/// read. A move from Peer to Host copies from the host memory of another machine; a move between
/// Peer and Device copies to or from memory of a device that the devices of other ranks read.
/// Planes of Peer are in such memory of their owner, which may be this rank. Entries of a ledger
/// are of Host or Device.
enum class Tier : uint8_t { None, Host, Device, Peer };
std::string_view name_of(Tier tier);

struct LedgerEntry {
  std::string name;  ///< the class: "weights", "momentum", "chunk blocks", ...
  Tier tier = Tier::Host;
  size_t bytes = 0;
};

class Ledger {
 public:
  /// Appends an entry, also if the class exists already. Ignores an entry of 0 bytes.
  void add(std::string_view name, Tier tier, size_t bytes);
  const std::vector<LedgerEntry>& entries() const { return entries_; }
  size_t total(Tier tier) const;
  /// The sum of all entries of a class; 0 if there is none.
  size_t bytes(std::string_view name, Tier tier) const;
  /// A table with a line for each class and one for the total, and a column each for device and
  /// host.
  std::string table() const;

 private:
  std::vector<LedgerEntry> entries_;
};

}  // namespace ebb
