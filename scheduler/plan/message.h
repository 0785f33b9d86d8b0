// The messages by which ranks meet during a step. They carry no bytes: a rank addresses the
// memory of the ranks on its machine, and copies from that of ranks on other machines. Plain
// values.
//
// Each rank has a plan of its own. It loads weights from the memory of their owner, stores gradient
// sums in sum slots of its own memory, of the host or of the device, and adds and updates its own
// chunks only. The weights of an owner on another machine are fetched to a fetch slot in host
// memory and loaded from there; or, with Schedule::copies_weights, one rank of each machine fetches
// each chunk of another machine once in a step, to a copy from which all ranks of its machine load
// it (ChunkRecord::is_copied). Op::slot is the
// index of such a slot: in a store or a share of complete gradient sums of a sum slot, in a fetch
// to a fetch slot and in the load from there of this slot. It is kNone for the copy of a machine.
// docs/ranks.md has an example.
#pragma once

#include <cstdint>
#include <string_view>

#include "device/stream.h"

namespace ebb {

/// What a Send or a Receive is about.
enum class Message : uint8_t {
  /// A parameter chunk is updated. The owner sends it, except after a delayed update, for which
  /// no rank waits.
  Weights,
  /// The weights of a chunk of another machine are in the copy of this machine
  /// (ChunkRecord::is_copied). The rank that fetched them sends it to the others of its machine.
  Copied,
  /// All gradient sums of a rank for a parameter chunk are in slots, and the rank no longer needs
  /// the present weights of the chunk. All other ranks send it to the owner.
  Sums,
  Added,  ///< the sums of a parameter chunk are added, so their slots are free; the owner sends it
  /// A rank has made the partial norms of its chunks. All ranks send it, and each receives those of
  /// all others.
  Norms,
};
std::string_view name_of(Message message);
/// The stream of a Send. Messages of the owner follow an operation of the update stream, and run
/// there: on the send stream they would delay the later messages of this rank until it ends.
constexpr StreamKind stream_of_send(Message message) {
  if (message == Message::Copied) return StreamKind::Fetch;
  const bool is_of_owner = message == Message::Weights || message == Message::Added;
  return is_of_owner ? StreamKind::Update : StreamKind::Send;
}

}  // namespace ebb
