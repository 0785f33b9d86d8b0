// The messages by which ranks meet during a step. They carry no bytes: a rank addresses the
// memory of the ranks on its machine, and copies from that of ranks on other machines. Plain
// values.
//
// Each rank has a plan of its own. It loads weights from the memory of their owner, stores gradient
// sums in sum slots of its own memory, of the host or of the device, and updates its own chunks
// only. The owner of a chunk adds its sums, or a rank of each machine does (running_sums.h). The
// weights of an owner on another machine are fetched to a fetch slot in host memory and loaded from
// there; or, with Schedule::copies_weights, one rank of each machine fetches each chunk of another
// machine once in a step, to a copy from which all ranks of its machine load it
// (ChunkRecord::is_copied). Op::slot is the index of a sum slot in a store or a share of gradient
// sums, of a fetch slot in a fetch and in the load from it, and of a running slot in FetchSum,
// AddGroups and RoundTotal. It is kNone for the copy of a machine. docs/ranks.md has an example.
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
  /// the present weights of the chunk. Each rank sends it to the one that adds its sums
  /// (adder_of()), unless it is that rank.
  Sums,
  /// The sums of a parameter chunk are added, so their slots are free. The rank that added them
  /// sends it (adder_of()). If sums are chained, this is a rank of each machine; its running sum is
  /// then complete, and it and the ranks whose sums it added need no present weights any more.
  Added,
  /// The rank that adds on the next machine has copied the running sum of a parameter chunk, so the
  /// slot of the rank that added it is free.
  SumCopied,
  /// The owner has copied the sum of all groups of a parameter chunk from the last machine, so the
  /// slot there is free.
  TotalCopied,
  /// A rank has made the partial norms of its chunks. All ranks send it, and each receives those of
  /// all others.
  Norms,
  // About a split load (split_loads.h). Each rank of a machine sends it to all others of it.
  PartLoaded,  ///< this rank has loaded its part
  /// This rank has gathered the parts. When all ranks of the machine have, the slots are free. It
  /// is
  /// sent only if the slot is used again in the plan.
  Gathered,
};
std::string_view name_of(Message message);
/// The stream of a Send. Weights and Added run on the update stream, and Copied, SumCopied and
/// TotalCopied on the fetch stream, because that stream does what they announce: on the send stream
/// they would delay the later messages of this rank until that is done. PartLoaded and Gathered run
/// on the parts stream.
constexpr StreamKind stream_of_send(Message message) {
  switch (message) {
    case Message::Weights:
    case Message::Added:
      return StreamKind::Update;
    case Message::Copied:
    case Message::SumCopied:
    case Message::TotalCopied:
      return StreamKind::Fetch;
    case Message::PartLoaded:
    case Message::Gathered:
      return StreamKind::Parts;
    case Message::Sums:
    case Message::Norms:
      break;
  }
  return StreamKind::Send;
}
/// May a Receive be on the parts stream? Those of PartLoaded and Gathered always are, and those of
/// Weights and Copied if the load of a part names them. (If a fetch names them, they are on the
/// receive stream, as all others.) On the receive stream, other Receives would wait behind them.
/// The copy thread submits the parts stream and the load stream.
constexpr bool may_be_on_parts_stream(Message message) {
  return message == Message::Weights || message == Message::Copied ||
         message == Message::PartLoaded || message == Message::Gathered;
}

}  // namespace ebb
