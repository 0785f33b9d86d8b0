// The home: the host memory in which the training state is stored, one plane after the other.
// device/planes.h describes the planes.
//
// The planes of a chunk are stored either in the home or on a device, during the whole run. A load
// copies weights to the device, and the home keeps them. A chunk whose planes are stored on a
// device takes no home memory. The home also has the gradient buffers, the host buffers for
// gradient sums and activations that a plan stores between their uses, and the partial norms.
// Everything that loads and stores copy is one buffer of MemoryKind::Home, which is pinned as far
// as the limit allows.
//
// The weights of a chunk whose update is delayed (UpdateTime::Delayed) are there twice: updates
// write one place, and the device computes with the other, until the caller switches them.
//
// With several ranks, the planes of a chunk are in the home of its owner, or on its device. The
// caller then gives the memory of the home, which all ranks of this machine can address, has it
// pinned (Device::share()), and connects the homes of all ranks. Ranks of other machines copy from
// the home (Ranks::read()). It has copies of weights of other machines, from which the ranks of
// this machine load them (ChunkRecord::is_copied). Where groups are added in host memory, the home
// also has slots for their sums (scheduler/plan/sum_slots.h). If sums pass from machine to machine,
// it has slots for running sums, also where a GPU adds (scheduler/plan/running_sums.h).
//
// The constructor allocates all memory, or uses that of the caller. Methods are thread-safe, except
// connect() and switch_weights(). During a plan, the plan orders the accesses to the memory itself,
// except those of a reader of the state, for which updates wait (scheduler/run/state_lock.h).
// Between plans the program thread reads and writes planes (scheduler/run/state.h).
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "chunk/chunk_record.h"
#include "chunk/layout.h"
#include "chunk/ledger.h"
#include "chunk/rank_place.h"
#include "device/device.h"
#include "device/planes.h"

namespace ebb {

struct HomeOptions {
  /// [parameter chunk] where its planes are. Empty: all are in host memory.
  std::vector<ChunkRecord> chunks;
  /// The number of gradient buffers, each for the gradient of one parameter chunk. If there is one
  /// for each chunk in host memory, buffer i belongs to the i-th of these chunks. If there are
  /// fewer, buffers are reused.
  uint32_t gradient_buffers = 0;
  std::vector<uint32_t> sums;         ///< sum chunks stored between their uses, ascending
  std::vector<uint32_t> activations;  ///< arena chunks stored while they are idle, ascending
  uint32_t sum_slots = 0;             ///< for complete gradient sums of groups
  /// These slots are in device memory, and the home only says which slot each sum chunk has.
  bool sums_on_devices = false;
  DType sum_type = DType::F32;  ///< of the sums in these slots (Division::sum_type)
  uint32_t fetch_slots = 0;     ///< for weights of other machines
  uint32_t running_slots = 0;   ///< for running sums (scheduler/plan/running_sums.h)
  RankPlace place = {};
};

/// Adds the bytes of a Home to the ledger, by class. The numbers are the same before and after its
/// construction.
void add_home(Ledger& ledger, const Layout& layout, std::span<const PlaneInfo> planes,
              const HomeOptions& options);

/// The bytes of a Home that loads and stores copy. They are contiguous.
size_t copied_bytes(const Layout& layout, std::span<const PlaneInfo> planes,
                    const HomeOptions& options);

/// Offsets of the parts of a home that other ranks access, in its memory. Its first bytes are the
/// planes that loads copy, and the copies of weights of other machines: together `loaded_bytes`.
struct HomeParts {
  std::array<uint64_t, kMostPlanes> planes = {};
  uint64_t loaded_bytes = 0;
  uint64_t copies = 0;
  uint64_t sum_slots = 0, slot_numbers = 0, running_sums = 0, partial_norms = 0;
};

/// Bytes in the home of a rank on another machine: from `offset` on in its memory.
struct HomePlace {
  uint32_t rank;
  uint64_t offset;
};

/// All bytes of a home, for memory that the caller allocates. The first copied_bytes() of them are
/// those that loads and stores copy.
size_t home_bytes(const Layout& layout, std::span<const PlaneInfo> planes,
                  const HomeOptions& options);

class Home {
 public:
  /// Allocates its memory. `planes` must live as long as the home.
  Home(Device& device, const Layout& layout, std::span<const PlaneInfo> planes,
       const HomeOptions& options);
  /// Uses `memory`, which must live as long as the home. It has home_bytes() bytes, all zero.
  Home(std::byte* memory, const Layout& layout, std::span<const PlaneInfo> planes,
       const HomeOptions& options);

  // With several ranks, this home also has the addresses of the homes of the other ranks.
  /// REQUIRES: the home is in memory of the caller.
  const HomeParts& parts() const { return parts_; }
  /// Must be called for each other rank before anything of that rank is accessed. `memory`: the
  /// memory of its home, in this process; null if the rank is on another machine.
  void connect(uint32_t rank, std::byte* memory, const HomeParts& parts);

  /// Does this rank own the chunk?
  bool is_mine(ChunkIndex chunk) const { return owner(chunk) == place_.rank; }
  uint32_t owner(ChunkIndex chunk) const { return owner_of(chunk, place_.num_ranks); }
  /// Is the rank on this machine? The memory of other machines has places instead of addresses.
  bool is_near(uint32_t rank) const { return place_.is_near(rank); }
  /// The part of the i-th plane that belongs to a chunk, in the home of its owner. Of two copies of
  /// the weights it is the one that the device computes with. REQUIRES: the chunk is in host
  /// memory, and its owner is near.
  std::byte* plane(size_t i, ChunkIndex chunk) const;
  /// The other copy of the weights. REQUIRES: as plane(), and updates of the chunk are delayed.
  std::byte* next_weights(ChunkIndex chunk) const;
  /// From now on plane() of this object names the weights that delayed updates wrote, also those of
  /// other ranks, and next_weights() the others. REQUIRES: no plan of this rank runs. All ranks
  /// switch after the same plans. A rank that accesses weights of another one afterwards knows that
  /// it has made its updates (an exchange comes between).
  void switch_weights() { current_copy_ = 1 - current_copy_; }
  /// The place of element `element` of this plane, counted from the first of the chunk. REQUIRES:
  /// as plane(), but the owner is not near.
  HomePlace plane_place(size_t i, ChunkIndex chunk, uint64_t element) const;
  /// The address of an element of the weight plane. REQUIRES: there is one rank, all chunks are in
  /// host memory, and no update is delayed.
  std::byte* weight(uint64_t element) const {
    return ranks_[0].planes[kWeightPlane] + infos_[kWeightPlane].bytes(element);
  }
  /// REQUIRES: index < HomeOptions::gradient_buffers.
  std::byte* gradient_buffer(BufferIndex index) const {
    return gradients_ + index * gradient_buffer_bytes_;
  }
  /// A chunk of gradient sums or activations. REQUIRES: it is in HomeOptions.
  std::byte* host_buffer(ChunkId id) const;
  /// A slot of a rank for a chunk of gradient sums. REQUIRES: slot < HomeOptions::sum_slots, the
  /// slots are in the home, and the rank is near.
  std::byte* sum_slot(uint32_t rank, BufferIndex slot) const {
    return ranks_[rank].sum_slots + slot * sum_slot_bytes_;
  }
  /// Must be called before the sums are added. Writes in which slot the sum chunk is; the ranks
  /// that add the sums read this number. Sum chunks are counted over all groups of the rank.
  void set_slot(uint32_t sum_chunk, BufferIndex slot) const;
  /// The slot in which a sum chunk of a rank is, counted over all groups of that rank. REQUIRES:
  /// that rank has called set_slot(), and this happened before.
  BufferIndex slot_of(uint32_t rank, uint32_t sum_chunk) const;
  /// The same for a rank that is not near: where it wrote the number of the slot (a uint32_t), and
  /// where a slot is.
  HomePlace slot_number_place(uint32_t rank, uint32_t sum_chunk) const;
  HomePlace sum_slot_place(uint32_t rank, BufferIndex slot) const;
  /// The copy of the weights of a chunk of another machine, in the home of the rank of this machine
  /// that fetches it. REQUIRES: the chunk is_copied.
  std::byte* copied_weights(ChunkIndex chunk) const;
  /// A buffer for weights of other machines. REQUIRES: slot < HomeOptions::fetch_slots.
  std::byte* fetch_slot(BufferIndex slot) const { return fetched_ + slot * chunk_bytes_; }
  /// A slot for a running sum of this rank, and where that of a rank on another machine is.
  /// REQUIRES: slot < HomeOptions::running_slots.
  float* running_sum(BufferIndex slot) const;
  HomePlace running_sum_place(uint32_t rank, BufferIndex slot) const;
  /// The sum of squares of each piece of the parameter space, also of chunks on the device. Empty
  /// if nothing is updated. The owner of a chunk makes those of its pieces; those of other owners
  /// are there when Message::Norms was received (scheduler/plan/message.h).
  std::span<double> partial_norms() const { return partial_norms(place_.rank); }
  std::span<double> partial_norms(uint32_t rank) const {
    return {reinterpret_cast<double*>(ranks_[rank].partials), num_partials_};
  }
  HomePlace partial_norm_place(uint32_t rank, uint64_t piece) const;

 private:
  /// The addresses of a rank's home; null if the rank is not near.
  struct OfRank {
    HomeParts parts = {};
    std::array<std::byte*, kMostPlanes> planes = {};
    std::byte* copies = nullptr;
    std::byte* sum_slots = nullptr;
    std::byte* slot_numbers = nullptr;
    std::byte* partials = nullptr;
  };
  Home(const Layout& layout, std::span<const PlaneInfo> planes, const HomeOptions& options);
  OfRank& own() { return ranks_[place_.rank]; }
  void set_parts(std::byte* memory, std::span<const size_t> offsets);
  void connect_parts(uint32_t rank, std::byte* memory, const HomeParts& parts);
  uint64_t first_byte(size_t plane, ChunkIndex chunk) const;
  uint64_t first_weight_byte(ChunkIndex chunk, uint32_t copy) const;

  size_t chunk_bytes_;
  size_t sum_slot_bytes_;
  size_t running_slot_bytes_;
  uint64_t chunk_elements_;
  size_t gradient_buffer_bytes_;
  RankPlace place_;
  /// [chunk] the number of chunks before it in the home of its owner; kNone: it is on a device
  std::vector<uint32_t> home_index_;
  /// [chunk] the same for a plane of weights, which has two places for a delayed update
  std::vector<uint32_t> first_weights_;
  std::vector<bool> has_delayed_update_;  // [chunk] empty: none
  uint32_t current_copy_ = 0;             // of the weights of these chunks
  bool has_copies_ = false;               // of the weights of all chunks of other machines
  std::vector<uint32_t> stored_sums_, stored_activations_;
  std::span<const PlaneInfo> infos_;
  Buffer copied_;                 // all that loads and stores copy
  std::vector<Buffer> uncopied_;  // the planes that they do not copy
  HomeParts parts_;
  std::vector<OfRank> ranks_;
  std::byte* gradients_ = nullptr;
  std::byte* sums_ = nullptr;
  std::byte* activations_ = nullptr;
  std::byte* fetched_ = nullptr;
  std::byte* running_sums_ = nullptr;
  size_t num_partials_ = 0;
};

}  // namespace ebb
