// The home: the host memory in which the training state is stored, one plane after the other.
// device/planes.h describes the planes.
//
// The planes of a chunk are stored either in the home or on the device, during the whole run. (A
// load copies weights of the home, it does not move them.) A chunk whose planes are stored on the
// device takes no home memory. The home also has the gradient buffers, the host buffers for
// gradient sums and activations that a plan stores between their uses, and the partial norms.
// Everything that loads and stores copy is one buffer of MemoryKind::Home, which is pinned as far
// as the limit allows.
//
// The constructor allocates all memory. Methods are thread-safe. During a plan, the plan orders the
// accesses to the memory itself, except those of a reader of the state, for which updates wait
// (scheduler/run/state_lock.h). Between plans the program thread reads and writes planes
// (scheduler/run/state.h).
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "chunk/chunk_record.h"
#include "chunk/layout.h"
#include "chunk/ledger.h"
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
};

/// Adds the bytes of a Home to the ledger, by class. The numbers are the same before and after its
/// construction.
void add_home(Ledger& ledger, const Layout& layout, std::span<const PlaneInfo> planes,
              const HomeOptions& options);

/// The bytes of a Home that loads and stores copy. They are one buffer.
size_t copied_bytes(const Layout& layout, std::span<const PlaneInfo> planes,
                    const HomeOptions& options);

class Home {
 public:
  /// `planes` must live as long as the home.
  Home(Device& device, const Layout& layout, std::span<const PlaneInfo> planes,
       const HomeOptions& options);

  /// The i-th plane of a chunk. REQUIRES: the chunk is in host memory.
  std::byte* plane(size_t i, ChunkIndex chunk) const;
  /// The address of an element of the weight plane. REQUIRES: all chunks are in host memory.
  std::byte* weight(uint64_t element) const {
    return planes_[kWeightPlane] + infos_[kWeightPlane].bytes(element);
  }
  /// REQUIRES: index < HomeOptions::gradient_buffers.
  std::byte* gradient_buffer(BufferIndex index) const {
    return gradients_ + index * gradient_buffer_bytes_;
  }
  /// A chunk of gradient sums or activations. REQUIRES: it is in HomeOptions.
  std::byte* host_buffer(ChunkId id) const;
  /// The sum of squares of each piece of the parameter space, also of chunks on the device. Empty
  /// if nothing is updated.
  std::span<double> partial_norms() const {
    return {reinterpret_cast<double*>(partials_), num_partials_};
  }

 private:
  size_t chunk_bytes_;
  uint64_t chunk_elements_;
  size_t gradient_buffer_bytes_;
  std::vector<uint32_t> home_index_;  // [chunk] chunks in host memory before it, or kNone
  std::vector<uint32_t> stored_sums_, stored_activations_;
  std::span<const PlaneInfo> infos_;
  Buffer copied_;                 // all that loads and stores copy
  std::vector<Buffer> uncopied_;  // the planes that they do not copy
  std::vector<std::byte*> planes_;
  std::byte* gradients_ = nullptr;
  std::byte* sums_ = nullptr;
  std::byte* activations_ = nullptr;
  std::byte* partials_ = nullptr;
  size_t num_partials_ = 0;
};

}  // namespace ebb
