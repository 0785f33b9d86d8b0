#include "chunk/home.h"

#include <algorithm>

#include "device/errors.h"
#include "device/planes.h"

namespace ebb {
namespace {

/// The elements of the chunks in host memory.
uint64_t elements_at_home(const Layout& layout, const HomeOptions& options) {
  uint64_t elements = layout.num_space_elements();
  for (ChunkIndex c{0}; c < options.chunks.size(); ++c) {
    if (options.chunks[c].is_on_device()) elements -= layout.chunk_elements(c);
  }
  return elements;
}

size_t plane_bytes(const Layout& layout, const PlaneInfo& plane, const HomeOptions& options) {
  return plane.bytes(elements_at_home(layout, options));
}

struct Sizes {
  size_t gradient_buffer;
  size_t gradients;
  size_t sums;
  size_t activations;
  size_t partials;
};

Sizes sizes_of(const Layout& layout, const HomeOptions& options) {
  Sizes sizes{};
  sizes.gradient_buffer = layout.chunk_elements() * size_of(layout.gradient_type());
  // One buffer for each chunk in host memory takes only the used elements: the last chunk is rarely
  // full.
  const auto on_device =
      static_cast<uint32_t>(std::ranges::count_if(options.chunks, &ChunkRecord::is_on_device));
  const bool all = options.gradient_buffers == layout.num_chunks() - on_device;
  sizes.gradients = all ? elements_at_home(layout, options) * size_of(layout.gradient_type())
                        : options.gradient_buffers * sizes.gradient_buffer;
  for (uint32_t chunk : options.sums) {
    sizes.sums += layout.used_bytes({Space::GradientSums, chunk});
  }
  sizes.activations = options.activations.size() * layout.chunk_bytes();
  const bool updates = options.gradient_buffers > 0 || on_device > 0;
  if (updates) sizes.partials = layout.num_pieces() * sizeof(double);
  return sizes;
}

/// The offsets of parts in one allocation, one after the other.
struct Cuts {
  static constexpr size_t kAlignment = 256;
  std::vector<size_t> offsets = {};
  size_t bytes = 0;

  void add(size_t part) {
    bytes = (bytes + kAlignment - 1) / kAlignment * kAlignment;
    offsets.push_back(bytes);
    bytes += part;
  }
};

Cuts cuts_of(const Layout& layout, std::span<const PlaneInfo> planes, const HomeOptions& options) {
  Cuts cuts;
  for (const PlaneInfo& plane : planes) {
    if (plane.is_copied) cuts.add(plane_bytes(layout, plane, options));
  }
  const Sizes sizes = sizes_of(layout, options);
  for (const size_t bytes : {sizes.gradients, sizes.sums, sizes.activations, sizes.partials}) {
    cuts.add(bytes);
  }
  return cuts;
}

/// [chunk] the number of chunks in host memory before it; kNone: its planes are on the device.
std::vector<uint32_t> home_indices(const Layout& layout, const HomeOptions& options) {
  std::vector<uint32_t> indices(layout.num_chunks(), kNone);
  uint32_t next = 0;
  for (uint32_t c = 0; c < indices.size(); ++c) {
    const bool is_here = options.chunks.empty() || !options.chunks[c].is_on_device();
    if (is_here) indices[c] = next++;
  }
  return indices;
}

}  // namespace

size_t copied_bytes(const Layout& layout, std::span<const PlaneInfo> planes,
                    const HomeOptions& options) {
  return cuts_of(layout, planes, options).bytes;
}

void add_home(Ledger& ledger, const Layout& layout, std::span<const PlaneInfo> planes,
              const HomeOptions& options) {
  for (const PlaneInfo& plane : planes) {
    ledger.add(plane.name, Tier::Host, plane_bytes(layout, plane, options));
  }
  const Sizes sizes = sizes_of(layout, options);
  ledger.add("gradients", Tier::Host, sizes.gradients);
  ledger.add("gradient sums", Tier::Host, sizes.sums);
  ledger.add("activations", Tier::Host, sizes.activations);
  ledger.add("partial norms", Tier::Host, sizes.partials);
}

Home::Home(Device& device, const Layout& layout, std::span<const PlaneInfo> planes,
           const HomeOptions& options)
    : chunk_bytes_(layout.chunk_bytes()),
      chunk_elements_(layout.chunk_elements()),
      home_index_(home_indices(layout, options)),
      stored_sums_(options.sums),
      stored_activations_(options.activations),
      infos_(planes),
      planes_(planes.size()) {
  const Sizes sizes = sizes_of(layout, options);
  gradient_buffer_bytes_ = sizes.gradient_buffer;
  num_partials_ = sizes.partials / sizeof(double);
  std::vector<std::byte**> copied_parts;
  for (size_t i = 0; i < planes.size(); ++i) {
    if (planes[i].is_copied) {
      copied_parts.push_back(&planes_[i]);
      continue;
    }
    uncopied_.push_back(device.allocate(MemoryKind::Pageable,
                                        plane_bytes(layout, planes[i], options), planes[i].name));
    planes_[i] = uncopied_.back().data();
  }
  for (std::byte** part : {&gradients_, &sums_, &activations_, &partials_}) {
    copied_parts.push_back(part);
  }
  const Cuts cuts = cuts_of(layout, planes, options);
  copied_ = device.allocate(MemoryKind::Home, cuts.bytes, "home");
  for (size_t i = 0; i < copied_parts.size(); ++i) {
    *copied_parts[i] = copied_.data() + cuts.offsets[i];
  }
}

std::byte* Home::plane(size_t i, ChunkIndex chunk) const {
  EBB_CHECK(home_index_[chunk] != kNone, "the planes of this chunk are on the device");
  const uint64_t first = home_index_[chunk] * chunk_elements_;
  return planes_[i] + infos_[i].bytes(first);
}

std::byte* Home::host_buffer(ChunkId id) const {
  const bool is_sum = id.space == Space::GradientSums;
  const std::vector<uint32_t>& chunks = is_sum ? stored_sums_ : stored_activations_;
  const auto at = std::ranges::lower_bound(chunks, id.index);
  EBB_CHECK(at != chunks.end() && *at == id.index, "this chunk has no host buffer");
  // Only the last chunk of a space is shorter, so buffer i begins at i whole chunks.
  return (is_sum ? sums_ : activations_) + static_cast<size_t>(at - chunks.begin()) * chunk_bytes_;
}

}  // namespace ebb
