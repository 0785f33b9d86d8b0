// Home: the host memory in which the state lives, one plane after the other. A plane has one entry
// for each parameter: weights, momentum, and so on.
//
// A chunk lives here or on the device, with all its planes and for ever: what lives on the device
// takes no room at home. Beside the planes that the optimizer asks for stand gradient slots
// (gradients on their way to the update, or waiting for the norm), the fp32 sums and activations
// that a plan sends home between their uses, and the partial norms. Planes that copies touch are
// pinned.
//
// Taken whole at construction. Thread-safe as memory is: who writes what when is the plan's
// business.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "chunk/layout.h"
#include "chunk/ledger.h"
#include "device/device.h"
#include "device/planes.h"

namespace ebb {

struct HomeOptions {
  /// Parameter chunks that live on the device, ascending.
  std::vector<uint32_t> device_chunks;
  /// Each holds the gradient of one parameter chunk. With one for every chunk at home, slot i is
  /// that of the i-th of those (host_index()), and as large; with fewer, slots are used again.
  uint32_t gradient_buffers = 0;
  std::vector<uint32_t> sums;         ///< sum chunks that go home between their uses, ascending
  std::vector<uint32_t> activations;  ///< arena chunks that do so while they rest, ascending
};

/// How many of the chunks before this one live at home.
uint32_t host_index(std::span<const uint32_t> device_chunks, uint32_t chunk);

/// What Home will take, by class: the same numbers before and after.
void add_home(Ledger& ledger, const Layout& layout, std::span<const PlaneInfo> planes,
              const HomeOptions& options);

/// Of that, what copies touch: one region.
size_t copied_bytes(const Layout& layout, std::span<const PlaneInfo> planes,
                    const HomeOptions& options);

class Home {
 public:
  Home(Device& device, const Layout& layout, std::span<const PlaneInfo> planes,
       const HomeOptions& options);

  /// The i-th plane of a chunk. REQUIRES: it lives here.
  std::byte* plane(int i, uint32_t chunk) const;
  std::byte* weight_chunk(uint32_t chunk) const { return plane(0, chunk); }
  /// Element `element` of the weights, and those that follow. REQUIRES: all chunks live here.
  std::byte* weight(uint64_t element) const { return planes_[0] + element * bytes_per_element_[0]; }
  std::byte* gradient_buffer(uint32_t slot) const {
    return gradients_ + slot * gradient_buffer_bytes_;
  }
  /// A chunk of gradient sums or activations. REQUIRES: it is in HomeOptions.
  std::byte* host_buffer(ChunkId id) const;
  /// One sum of squares for each piece of the parameter space.
  std::span<double> partial_norms() const {
    return {reinterpret_cast<double*>(partials_), num_partials_};
  }

 private:
  size_t chunk_bytes_;
  uint64_t chunk_elements_;
  size_t gradient_buffer_bytes_;
  HomeOptions options_;
  std::vector<size_t> bytes_per_element_;
  Buffer copied_;                 // all that copies touch
  std::vector<Buffer> uncopied_;  // the other planes
  std::vector<std::byte*> planes_;
  std::byte* gradients_ = nullptr;
  std::byte* sums_ = nullptr;
  std::byte* activations_ = nullptr;
  std::byte* partials_ = nullptr;
  size_t num_partials_ = 0;
};

}  // namespace ebb
