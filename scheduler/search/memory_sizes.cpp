#include "scheduler/search/memory_sizes.h"

#include <algorithm>

#include "autograd/arena.h"
#include "device/planes.h"
#include "device/update_sizes.h"
#include "scheduler/plan/split_loads.h"

namespace ebb {
namespace {

constexpr uint64_t kBounceBufferElements = uint64_t{1} << 18;
constexpr int64_t kElementsPerOutlier = 12;
constexpr size_t kAlignment = 64;

/// Rounded up to whole chunks, which SharedDeviceMemory needs on a GPU.
size_t in_whole_chunks(size_t bytes, const Layout& layout) {
  const size_t chunk_bytes = layout.chunk_bytes();
  return (bytes + chunk_bytes - 1) / chunk_bytes * chunk_bytes;
}

}  // namespace

HomeOptions home_options(const Plan& plan) {
  return {.chunks = plan.chunks,
          .gradient_buffers = plan.gradient_buffers,
          .sums = plan.stored_sums,
          .activations = plan.stored_activations,
          .sum_slots = plan.sum_slots,
          .sums_on_devices = plan.division.sums_on_devices,
          .sum_type = plan.division.sum_type,
          .fetch_slots = plan.fetch_slots,
          .running_slots = plan.running_slots,
          .place = plan.division.place};
}

size_t partial_norm_bytes(const Layout& layout) { return layout.num_pieces() * sizeof(double); }

size_t device_state_bytes(const Layout& layout, uint32_t num_chunks) {
  const DType type = layout.weight_type();
  return num_chunks * plane_bytes(type, uncopied_planes(type), layout.chunk_elements());
}

size_t owner_state_bytes(const Layout& layout, uint32_t num_chunks) {
  const uint64_t elements = layout.chunk_elements();
  return num_chunks *
         (state_bytes(layout.weight_type(), elements) + elements * size_of(layout.gradient_type()));
}

uint64_t bounce_buffer_elements(const Layout& layout) {
  return std::min(kBounceBufferElements, layout.chunk_elements());
}

size_t bounce_buffer_bytes(const Layout& layout) {
  return state_bytes(layout.weight_type(), bounce_buffer_elements(layout));
}

size_t undo_log_bytes(const Layout& layout) {
  const auto n = static_cast<int64_t>(layout.chunk_elements());
  const size_t bytes = undo_log_bytes(n, n / kElementsPerOutlier);
  return (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

uint64_t num_far_portions(const Layout& layout, const Division& division) {
  uint32_t most_uses = 1;
  for (ParameterId id = 0; id < layout.num_parameters(); ++id) {
    most_uses = std::max(most_uses, layout.parameter(id).num_uses);
  }
  return uint64_t{num_far_groups(division)} * most_uses;
}

uint64_t pieces_of(uint64_t count) { return (count + kPieceElements - 1) / kPieceElements; }

size_t device_adder_bytes(const Layout& layout, DeviceKind kind) {
  if (kind == DeviceKind::Host) return 0;
  const uint64_t count = elements_added_at_once(layout);
  return count * (2 * sizeof(float) + size_of(layout.gradient_type())) +
         pieces_of(count) * sizeof(double) + kUpdateWorkspaceBytes;
}

size_t device_adder_pinned_bytes(const Layout& layout) {
  const uint64_t count = elements_added_at_once(layout);
  return count * sizeof(float) + pieces_of(count) * sizeof(double);
}

size_t adder_pinned_bytes(const Preparation& prepared) {
  const bool adds = prepared.division.sums_on_devices && prepared.device.kind != DeviceKind::Host;
  return adds ? device_adder_pinned_bytes(*prepared.layout) : 0;
}

size_t sum_slot_bytes(const Layout& layout, const Division& division, uint32_t num_slots) {
  return in_whole_chunks(num_slots * division.stored_bytes(layout.chunk_bytes()), layout);
}

size_t memory_of_part_slots(const Layout& layout, const Division& division) {
  if (!division.splits_loads) return 0;
  return in_whole_chunks(kPartSlots * part_slot_bytes(layout.chunk_bytes(), division.place),
                         layout);
}

size_t rounded_sum_bytes(const Layout& layout, const Division& division) {
  const bool rounds = division.sum_type != DType::F32 && !division.sums_on_devices;
  return rounds ? division.stored_bytes(layout.chunk_bytes()) : 0;
}

uint32_t most_micro_batches(const Preparation& prepared) {
  const uint32_t num_ranks = prepared.division.place.num_ranks;
  const uint32_t most_evaluated = (prepared.options.evaluation_batches + num_ranks - 1) / num_ranks;
  return std::max(prepared.share.micro_batches.count, most_evaluated);
}

Ledger fixed_memory(const Model& model, uint32_t num_micro_batches, const Layout& layout,
                    const Trace& trace, const Trace& evaluation) {
  size_t micro_batch_bytes = 0;
  for (const InputSpec& spec : model.inputs()) {
    micro_batch_bytes +=
        padded_bytes(static_cast<size_t>(spec.shape.num_elements()) * size_of(spec.dtype));
  }
  Ledger ledger;
  ledger.add(kInputs, Tier::Device, micro_batch_bytes * num_micro_batches);
  const size_t workspace[] = {trace.workspace_bytes, evaluation.workspace_bytes,
                              kUpdateWorkspaceBytes};
  ledger.add(kWorkspace, Tier::Device, std::ranges::max(workspace));
  ledger.add("partial norms", Tier::Device, partial_norm_bytes(layout));
  ledger.add(kLosses, Tier::Device, num_micro_batches * sizeof(double));
  return ledger;
}

}  // namespace ebb
