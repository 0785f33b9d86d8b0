#include "scheduler/run/sums_of_groups.h"

#include <utility>

#include "cpu_adam/ordered_sum.h"
#include "device/kernels.h"
#include "scheduler/plan/running_sums.h"
#include "scheduler/search/memory_sizes.h"

namespace ebb {

SumsOfGroups::SumsOfGroups(Device& device, const Layout& layout, const Home& home,
                           const std::vector<bool>& trained, const Plan& plan, Ranks* ranks,
                           Buffer pinned)
    : kernels_(device.kernels()),
      layout_(layout),
      home_(home),
      division_(plan.division),
      is_host_device_(device.info().profile.kind == DeviceKind::Host) {
  if (division_.sums_on_devices) {
    slots_.emplace(device, kSumsOfGroups, sum_slot_bytes(layout, division_, plan.sum_slots), ranks);
  }
  if (const size_t bytes = rounded_sum_bytes(layout, division_); bytes > 0) {
    rounded_ = device.allocate(MemoryKind::Device, bytes, kSumsOfGroups);
  }
  const StoredSums sums(layout, home, slots_ ? &*slots_ : nullptr, division_);
  const bool adds_on_gpu = division_.sums_on_devices && !is_host_device_;
  if (adds_on_gpu) device_adder_.emplace(device, layout, sums, trained, std::move(pinned));
  if (!adds_on_gpu || division_.chains_sums) {
    adder_.emplace(layout, home, sums, trained, division_, ranks);
  }
}

/// The kernels of the host device work for its compute stream, so a host function rounds there.
void SumsOfGroups::submit_rounding(Stream& store, std::byte* rounded,
                                   std::span<const std::byte> sums) {
  const auto count = static_cast<int64_t>(sums.size() / sizeof(float));
  if (!is_host_device_) {
    const Tensor from{const_cast<std::byte*>(sums.data()), DType::F32, {count}};
    return kernels_.submit(store, RoundGradient{{rounded, division_.sum_type, {count}}, from});
  }
  store.submit({.name = "round_sums"}, [this, rounded, from = sums.data(), count] {
    const std::byte* const group[] = {from};
    const GroupSums uses[] = {group};
    round_sums_in_order(store_team_, uses, DType::F32, count, rounded, division_.sum_type);
  });
}

void SumsOfGroups::submit(Stream& store, const Op& op, std::span<const std::byte> sums) {
  const size_t bytes = division_.stored_bytes(sums.size());
  std::byte* const slot =
      slots_ ? slots_->mine() + op.slot * division_.stored_bytes(layout_.chunk_bytes())
             : home_.sum_slot(division_.place.rank, op.slot);
  if (division_.sum_type == DType::F32) {
    store.copy(slot, sums.data(), bytes, is_share(op) ? CopyKind::Within : CopyKind::Store);
  } else if (is_share(op)) {
    submit_rounding(store, slot, sums);
  } else {  // the next rounding comes after this copy, on the same stream
    submit_rounding(store, rounded_.data(), sums);
    store.copy(slot, rounded_.data(), bytes, CopyKind::Store);
  }
}

void SumsOfGroups::add_to_running_sum(ThreadTeam& team, ChunkIndex chunk, BufferIndex slot) {
  float* const running = home_.running_sum(slot);
  const bool has_before = !is_first_machine(division_.place);
  if (device_adder_) return device_adder_->add_to(team, chunk, running, has_before);
  adder_->add_to(team, chunk, running, has_before);
}

void SumsOfGroups::round_total(ThreadTeam& team, ChunkIndex chunk, BufferIndex slot,
                               std::byte* gradient, std::span<double> partials) {
  adder_->round(team, chunk, home_.running_sum(slot), gradient, partials);
}

void SumsOfGroups::add(ThreadTeam& team, ChunkIndex chunk, std::byte* gradient,
                       std::span<double> partials) {
  if (device_adder_) {
    device_adder_->add(team, chunk, gradient, partials);
  } else {
    adder_->add(team, chunk, gradient, partials);
  }
}

}  // namespace ebb
