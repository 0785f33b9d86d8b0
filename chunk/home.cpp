#include "chunk/home.h"

#include <algorithm>

#include "device/errors.h"

namespace ebb {
namespace {

struct Sizes {
  size_t gradient_slot;
  size_t gradients;
  size_t sums;
  size_t activations;
  size_t partials;
};

Sizes sizes_of(const Layout& layout, const HomeOptions& options) {
  Sizes sizes{};
  sizes.gradient_slot = layout.chunk_elements() * size_of(layout.gradient_type());
  // All chunks at once need no more than the space has elements: the last chunk is rarely full.
  sizes.gradients = options.num_gradient_slots == layout.num_chunks()
                        ? layout.num_space_elements() * size_of(layout.gradient_type())
                        : options.num_gradient_slots * sizes.gradient_slot;
  for (uint32_t chunk : options.sums) {
    sizes.sums += layout.used_bytes({Space::GradientSums, chunk});
  }
  sizes.activations = options.activations.size() * layout.chunk_bytes();
  if (options.num_gradient_slots > 0) sizes.partials = layout.num_pieces() * sizeof(double);
  return sizes;
}

/// Parts of one region, one after the other.
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

Cuts cuts_of(const Layout& layout, std::span<const PlaneSpec> planes, const HomeOptions& options) {
  Cuts cuts;
  for (const PlaneSpec& plane : options.planes_travel ? planes : planes.first(1)) {
    cuts.add(layout.num_space_elements() * plane.bytes_per_element);
  }
  const Sizes sizes = sizes_of(layout, options);
  for (const size_t bytes : {sizes.gradients, sizes.sums, sizes.activations, sizes.partials}) {
    cuts.add(bytes);
  }
  return cuts;
}

}  // namespace

size_t travelling_bytes(const Layout& layout, std::span<const PlaneSpec> planes,
                        const HomeOptions& options) {
  return cuts_of(layout, planes, options).bytes;
}

void add_home(Ledger& ledger, const Layout& layout, std::span<const PlaneSpec> planes,
              const HomeOptions& options) {
  for (const PlaneSpec& plane : planes) {
    ledger.add(plane.name, Tier::Host, layout.num_space_elements() * plane.bytes_per_element);
  }
  const Sizes sizes = sizes_of(layout, options);
  ledger.add("gradients", Tier::Host, sizes.gradients);
  ledger.add("gradient sums", Tier::Host, sizes.sums);
  ledger.add("activations", Tier::Host, sizes.activations);
  ledger.add("partial norms", Tier::Host, sizes.partials);
}

Home::Home(Device& device, const Layout& layout, std::span<const PlaneSpec> planes,
           const HomeOptions& options)
    : chunk_bytes_(layout.chunk_bytes()), options_(options) {
  const Sizes sizes = sizes_of(layout, options);
  gradient_slot_bytes_ = sizes.gradient_slot;
  num_partials_ = sizes.partials / sizeof(double);
  for (const PlaneSpec& plane : planes) {
    const size_t bytes = layout.num_space_elements() * plane.bytes_per_element;
    bytes_per_element_.push_back(plane.bytes_per_element);
    if (planes_.empty() || options.planes_travel) {
      planes_.push_back(nullptr);
    } else {
      staying_.push_back(device.allocate(MemoryKind::Pageable, bytes, plane.name));
      planes_.push_back(staying_.back().data());
    }
  }
  const Cuts cuts = cuts_of(layout, planes, options);
  travelling_ = device.allocate(MemoryKind::Home, cuts.bytes, "home");
  std::byte* const begin = travelling_.data();
  size_t cut = 0;
  for (std::byte*& plane : planes_) {
    if (plane == nullptr) plane = begin + cuts.offsets[cut++];
  }
  for (std::byte** part : {&gradients_, &sums_, &activations_, &partials_}) {
    *part = begin + cuts.offsets[cut++];
  }
}

std::byte* Home::visitor(ChunkId id) const {
  const bool is_sum = id.space == Space::GradientSums;
  const std::vector<uint32_t>& chunks = is_sum ? options_.sums : options_.activations;
  const auto at = std::ranges::lower_bound(chunks, id.index);
  EBB_CHECK(at != chunks.end() && *at == id.index, "a chunk has no place at home");
  // Only the last chunk of a space is short, so whole chunks are apart.
  return (is_sum ? sums_ : activations_) + static_cast<size_t>(at - chunks.begin()) * chunk_bytes_;
}

}  // namespace ebb
