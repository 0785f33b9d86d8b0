#include "chunk/home.h"

#include <algorithm>
#include <cstring>

#include "device/errors.h"
#include "device/planes.h"

namespace ebb {
namespace {

/// The elements of the chunks in this home.
uint64_t elements_at_home(const Layout& layout, const HomeOptions& options) {
  uint64_t elements = layout.num_space_elements();
  for (ChunkIndex c{0}; c < options.chunks.size(); ++c) {
    if (!options.chunks[c].is_at_home()) elements -= layout.chunk_elements(c);
  }
  return elements;
}

/// The bytes of second copies of weights: whole chunks, each behind its first copy.
size_t second_copy_bytes(const Layout& layout, std::span<const PlaneInfo> planes,
                         const HomeOptions& options) {
  const auto num_chunks = std::ranges::count_if(options.chunks, [](const ChunkRecord& chunk) {
    return chunk.is_at_home() && chunk.is_delayed();
  });
  return planes[kWeightPlane].bytes(static_cast<uint64_t>(num_chunks) * layout.chunk_elements());
}

size_t plane_bytes(const Layout& layout, std::span<const PlaneInfo> planes, size_t i,
                   const HomeOptions& options) {
  return planes[i].bytes(elements_at_home(layout, options)) +
         (i == kWeightPlane ? second_copy_bytes(layout, planes, options) : 0);
}

/// A chunk of gradient sums in their type.
size_t sum_slot_bytes_of(const Layout& layout, const HomeOptions& options) {
  return layout.chunk_bytes() / sizeof(float) * size_of(options.sum_type);
}

/// Of weights of other machines that this rank fetches for all ranks of its machine.
size_t bytes_of_copies(const Layout& layout, const HomeOptions& options) {
  size_t bytes = 0;
  for (ChunkIndex c{0}; c < options.chunks.size(); ++c) {
    if (options.chunks[c].is_copied && options.place.fetches(c)) bytes += layout.chunk_bytes();
  }
  return bytes;
}

struct Sizes {
  size_t gradient_buffer;
  size_t gradients;
  size_t sums;
  size_t activations;
  size_t sum_slots;
  size_t slot_numbers;
  size_t running_slot, running_sums;
  size_t partials;
  size_t fetch_slots;
};

Sizes sizes_of(const Layout& layout, const HomeOptions& options) {
  Sizes sizes{};
  sizes.gradient_buffer = layout.chunk_elements() * size_of(layout.gradient_type());
  // One buffer for each chunk in host memory takes only the used elements: the last chunk is rarely
  // full.
  const auto elsewhere = static_cast<uint32_t>(std::ranges::count_if(
      options.chunks, [](const ChunkRecord& chunk) { return !chunk.is_at_home(); }));
  const bool all = options.gradient_buffers == layout.num_chunks() - elsewhere;
  sizes.gradients = all ? elements_at_home(layout, options) * size_of(layout.gradient_type())
                        : options.gradient_buffers * sizes.gradient_buffer;
  if (!options.sums.empty()) {  // buffer i begins at i whole chunks
    sizes.sums = (options.sums.size() - 1) * layout.chunk_bytes() +
                 layout.used_bytes({Space::GradientSums, options.sums.back()});
  }
  sizes.activations = options.activations.size() * layout.chunk_bytes();
  if (!options.sums_on_devices) {
    sizes.sum_slots = options.sum_slots * sum_slot_bytes_of(layout, options);
  }
  if (options.sum_slots > 0) {
    sizes.slot_numbers = layout.num_chunks(Space::GradientSums) * sizeof(uint32_t);
  }
  sizes.fetch_slots = options.fetch_slots * layout.chunk_bytes();
  for (ChunkIndex c{0}; options.running_slots > 0 && c < layout.num_chunks(); ++c) {
    sizes.running_slot = std::max(sizes.running_slot, layout.running_sum_bytes(c));
  }
  sizes.running_sums = options.running_slots * sizes.running_slot;
  const bool updates = options.gradient_buffers > 0 || elsewhere > 0;
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

/// The planes that loads and stores copy, then the copies of weights and the parts of Sizes; with
/// `uncopied`, then the other planes.
Cuts cuts_of(const Layout& layout, std::span<const PlaneInfo> planes, const HomeOptions& options,
             bool uncopied) {
  Cuts cuts;
  const auto add_planes = [&](bool are_copied) {
    for (size_t i = 0; i < planes.size(); ++i) {
      if (planes[i].is_copied == are_copied) cuts.add(plane_bytes(layout, planes, i, options));
    }
  };
  add_planes(true);
  cuts.add(bytes_of_copies(layout, options));
  const Sizes sizes = sizes_of(layout, options);
  for (const size_t bytes :
       {sizes.gradients, sizes.sums, sizes.activations, sizes.sum_slots, sizes.slot_numbers,
        sizes.fetch_slots, sizes.running_sums, sizes.partials}) {
    cuts.add(bytes);
  }
  if (uncopied) add_planes(false);
  return cuts;
}

/// [chunk] the number of chunks before it in the home of its owner, where those with a delayed
/// update count as `copies`; kNone: its planes are on a device.
std::vector<uint32_t> home_indices(const Layout& layout, const HomeOptions& options,
                                   uint32_t copies) {
  std::vector<uint32_t> indices(layout.num_chunks(), kNone);
  std::vector<uint32_t> next(options.place.num_ranks, 0);
  for (uint32_t c = 0; c < indices.size(); ++c) {
    const ChunkRecord chunk = options.chunks.empty() ? ChunkRecord{} : options.chunks[c];
    if (chunk.tier != Tier::Host) continue;
    indices[c] = next[chunk.owner];
    next[chunk.owner] += chunk.is_delayed() ? copies : 1;
  }
  return indices;
}

/// The number of copies before that of the chunk in the home of the rank that fetches it for this
/// machine. It fetches every n-th chunk, where n is the number of ranks of a machine, except those
/// of its own machine, which are every num_machines-th of these.
uint32_t copy_index(ChunkIndex chunk, const RankPlace& place, uint32_t machine) {
  const uint32_t num_before = chunk / place.ranks_per_machine();
  const uint32_t num_own = (num_before + place.num_machines - 1 - machine) / place.num_machines;
  return num_before - num_own;
}

}  // namespace

size_t copied_bytes(const Layout& layout, std::span<const PlaneInfo> planes,
                    const HomeOptions& options) {
  return cuts_of(layout, planes, options, false).bytes;
}

size_t home_bytes(const Layout& layout, std::span<const PlaneInfo> planes,
                  const HomeOptions& options) {
  return cuts_of(layout, planes, options, true).bytes;
}

void add_home(Ledger& ledger, const Layout& layout, std::span<const PlaneInfo> planes,
              const HomeOptions& options) {
  for (const PlaneInfo& plane : planes) {
    ledger.add(plane.name, Tier::Host, plane.bytes(elements_at_home(layout, options)));
  }
  ledger.add("second copy of weights", Tier::Host, second_copy_bytes(layout, planes, options));
  const Sizes sizes = sizes_of(layout, options);
  ledger.add("gradients", Tier::Host, sizes.gradients);
  ledger.add("gradient sums", Tier::Host, sizes.sums);
  ledger.add("activations", Tier::Host, sizes.activations);
  ledger.add("sums of groups", Tier::Host, sizes.sum_slots + sizes.slot_numbers);
  ledger.add("running sums", Tier::Host, sizes.running_sums);
  ledger.add("partial norms", Tier::Host, sizes.partials);
  ledger.add("fetched weights", Tier::Host, sizes.fetch_slots + bytes_of_copies(layout, options));
}

Home::Home(const Layout& layout, std::span<const PlaneInfo> planes, const HomeOptions& options)
    : chunk_bytes_(layout.chunk_bytes()),
      sum_slot_bytes_(sum_slot_bytes_of(layout, options)),
      chunk_elements_(layout.chunk_elements()),
      place_(options.place),
      home_index_(home_indices(layout, options, 1)),
      first_weights_(home_indices(layout, options, 2)),
      has_copies_(std::ranges::any_of(options.chunks, &ChunkRecord::is_copied)),
      stored_sums_(options.sums),
      stored_activations_(options.activations),
      infos_(planes),
      ranks_(options.place.num_ranks) {
  const Sizes sizes = sizes_of(layout, options);
  gradient_buffer_bytes_ = sizes.gradient_buffer;
  running_slot_bytes_ = sizes.running_slot;
  num_partials_ = sizes.partials / sizeof(double);
  for (const ChunkRecord& chunk : options.chunks) {
    has_delayed_update_.push_back(chunk.is_delayed());
  }
}

Home::Home(Device& device, const Layout& layout, std::span<const PlaneInfo> planes,
           const HomeOptions& options)
    : Home(layout, planes, options) {
  const Cuts cuts = cuts_of(layout, planes, options, false);
  copied_ = device.allocate(MemoryKind::Home, cuts.bytes, "home");
  size_t next = 0;
  for (size_t i = 0; i < planes.size(); ++i) {
    if (planes[i].is_copied) {
      own().planes[i] = copied_.data() + cuts.offsets[next++];
      continue;
    }
    uncopied_.push_back(device.allocate(MemoryKind::Pageable,
                                        plane_bytes(layout, planes, i, options), planes[i].name));
    own().planes[i] = uncopied_.back().data();
  }
  set_parts(copied_.data(), std::span(cuts.offsets).subspan(next));
}

Home::Home(std::byte* memory, const Layout& layout, std::span<const PlaneInfo> planes,
           const HomeOptions& options)
    : Home(layout, planes, options) {
  const Cuts cuts = cuts_of(layout, planes, options, true);
  const auto num_copied = static_cast<size_t>(std::ranges::count_if(planes, &PlaneInfo::is_copied));
  size_t next = 0, next_uncopied = cuts.offsets.size() - (planes.size() - num_copied);
  for (size_t i = 0; i < planes.size(); ++i) {
    parts_.planes[i] = cuts.offsets[planes[i].is_copied ? next++ : next_uncopied++];
    if (!planes[i].is_copied) continue;
    parts_.loaded_bytes = parts_.planes[i] + plane_bytes(layout, planes, i, options);
  }
  if (const size_t bytes = bytes_of_copies(layout, options); bytes > 0) {
    parts_.loaded_bytes = cuts.offsets[num_copied] + bytes;
  }
  set_parts(memory, std::span(cuts.offsets).subspan(num_copied));
  connect(place_.rank, memory, parts_);
}

/// The parts in the order of cuts_of().
void Home::set_parts(std::byte* memory, std::span<const size_t> offsets) {
  parts_.copies = offsets[0];
  gradients_ = memory + offsets[1];
  sums_ = memory + offsets[2];
  activations_ = memory + offsets[3];
  parts_.sum_slots = offsets[4];
  parts_.slot_numbers = offsets[5];
  fetched_ = memory + offsets[6];
  parts_.running_sums = offsets[7];
  running_sums_ = memory + parts_.running_sums;
  parts_.partial_norms = offsets[8];
  connect_parts(place_.rank, memory, parts_);
}

void Home::connect(uint32_t rank, std::byte* memory, const HomeParts& parts) {
  ranks_[rank].parts = parts;
  if (memory == nullptr) return;
  for (size_t i = 0; i < infos_.size(); ++i) {
    ranks_[rank].planes[i] = memory + parts.planes[i];
  }
  connect_parts(rank, memory, parts);
}

/// All but the planes.
void Home::connect_parts(uint32_t rank, std::byte* memory, const HomeParts& parts) {
  OfRank& of = ranks_[rank];
  of.copies = memory + parts.copies;
  of.sum_slots = memory + parts.sum_slots;
  of.slot_numbers = memory + parts.slot_numbers;
  of.partials = memory + parts.partial_norms;
}

std::byte* Home::plane(size_t i, ChunkIndex chunk) const {
  std::byte* const plane = ranks_[owner(chunk)].planes[i];
  EBB_CHECK(plane != nullptr, "the planes of this chunk are on another machine");
  return plane + first_byte(i, chunk);
}

/// In the plane of its owner.
uint64_t Home::first_byte(size_t plane, ChunkIndex chunk) const {
  EBB_CHECK(home_index_[chunk] != kNone, "the planes of this chunk are on a device");
  if (plane != kWeightPlane) return infos_[plane].bytes(home_index_[chunk] * chunk_elements_);
  const bool switches = !has_delayed_update_.empty() && has_delayed_update_[chunk];
  return first_weight_byte(chunk, switches ? current_copy_ : 0);
}

uint64_t Home::first_weight_byte(ChunkIndex chunk, uint32_t copy) const {
  return infos_[kWeightPlane].bytes((first_weights_[chunk] + copy) * chunk_elements_);
}

std::byte* Home::next_weights(ChunkIndex chunk) const {
  EBB_CHECK(!has_delayed_update_.empty() && has_delayed_update_[chunk],
            "this chunk has no second copy of its weights");
  return ranks_[owner(chunk)].planes[kWeightPlane] + first_weight_byte(chunk, 1 - current_copy_);
}

HomePlace Home::plane_place(size_t i, ChunkIndex chunk, uint64_t element) const {
  const uint32_t rank = owner(chunk);
  return {rank, ranks_[rank].parts.planes[i] + first_byte(i, chunk) + infos_[i].bytes(element)};
}

std::byte* Home::copied_weights(ChunkIndex chunk) const {
  EBB_CHECK(has_copies_ && !is_near(owner(chunk)), "the weights of this chunk have no copy");
  const uint32_t machine = place_.machine_of(place_.rank);
  return ranks_[place_.fetcher_of(chunk)].copies +
         copy_index(chunk, place_, machine) * chunk_bytes_;
}

HomePlace Home::slot_number_place(uint32_t rank, uint32_t sum_chunk) const {
  return {rank, ranks_[rank].parts.slot_numbers + sum_chunk * sizeof(uint32_t)};
}

HomePlace Home::sum_slot_place(uint32_t rank, BufferIndex slot) const {
  return {rank, ranks_[rank].parts.sum_slots + slot * sum_slot_bytes_};
}

float* Home::running_sum(BufferIndex slot) const {
  return reinterpret_cast<float*>(running_sums_ + slot * running_slot_bytes_);
}

HomePlace Home::running_sum_place(uint32_t rank, BufferIndex slot) const {
  return {rank, ranks_[rank].parts.running_sums + slot * running_slot_bytes_};
}

HomePlace Home::partial_norm_place(uint32_t rank, uint64_t piece) const {
  return {rank, ranks_[rank].parts.partial_norms + piece * sizeof(double)};
}

void Home::set_slot(uint32_t sum_chunk, BufferIndex slot) const {
  const uint32_t number = slot;
  std::memcpy(ranks_[place_.rank].slot_numbers + sum_chunk * sizeof number, &number, sizeof number);
}

BufferIndex Home::slot_of(uint32_t rank, uint32_t sum_chunk) const {
  uint32_t number = 0;
  std::memcpy(&number, ranks_[rank].slot_numbers + sum_chunk * sizeof number, sizeof number);
  return BufferIndex(number);
}

std::byte* Home::host_buffer(ChunkId id) const {
  const bool is_sum = id.space == Space::GradientSums;
  const std::vector<uint32_t>& chunks = is_sum ? stored_sums_ : stored_activations_;
  const auto at = std::ranges::lower_bound(chunks, id.index);
  EBB_CHECK(at != chunks.end() && *at == id.index, "this chunk has no host buffer");
  return (is_sum ? sums_ : activations_) + static_cast<size_t>(at - chunks.begin()) * chunk_bytes_;
}

}  // namespace ebb
