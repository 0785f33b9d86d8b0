#include "tools/memory_advice.h"

#include <fmt/format.h>

#include <algorithm>
#include <span>
#include <vector>

#include "device/errors.h"

namespace ebb {
namespace {

/// N GB of RAM are N GiB, of which the system leaves about N * 10^9 bytes.
constexpr MemorySize ram(int gigabytes) {
  return {gigabytes, static_cast<size_t>(gigabytes) * 1'000'000'000};
}
constexpr MemorySize kRam[] = {ram(16),   ram(32),   ram(48),   ram(64),   ram(96),   ram(128),
                               ram(192),  ram(256),  ram(384),  ram(512),  ram(768),  ram(1024),
                               ram(1536), ram(2048), ram(3072), ram(4096), ram(6144), ram(8192)};

/// GPU memory, of which the driver and error correction take a part (tools/machines).
constexpr MemorySize gpu(int gigabytes, size_t usable_gib) { return {gigabytes, usable_gib << 30}; }
constexpr MemorySize kGpu[] = {gpu(8, 7),   gpu(12, 11), gpu(16, 15), gpu(24, 23),  gpu(32, 31),
                               gpu(48, 44), gpu(80, 79), gpu(96, 94), gpu(141, 139)};

std::optional<MemorySize> smallest(std::span<const MemorySize> sizes, size_t bytes) {
  const auto found = std::ranges::lower_bound(sizes, bytes, {}, &MemorySize::usable_bytes);
  if (found == sizes.end()) return std::nullopt;
  return *found;
}

/// The smallest usual GPU memory from `least_bytes` on with which the training fits. Larger memory
/// also fits, so the sizes are halved.
std::optional<MemorySize> smallest_gpu_that_fits(TrainOptions options, const PlanContext& context,
                                                 size_t least_bytes) {
  const auto fits_with = [&](const MemorySize& size) {
    options.device_memory = size.usable_bytes;
    return try_step(options, context).has_value();
  };
  const auto begin = std::ranges::lower_bound(kGpu, least_bytes, {}, &MemorySize::usable_bytes);
  const auto found = std::partition_point(begin, std::end(kGpu),
                                          [&](const MemorySize& size) { return !fits_with(size); });
  if (found == std::end(kGpu)) return std::nullopt;
  return *found;
}

/// The RAM for a training with this device budget.
std::optional<MemoryAnswer> answer_with_ram(const TrainOptions& options, const PlanContext& context,
                                            std::optional<MemorySize> device,
                                            std::optional<size_t> host_bytes) {
  TrainOptions changed = options;
  if (device) changed.device_memory = device->usable_bytes;
  if (!host_bytes) host_bytes = least_host_bytes(changed, context);
  if (!host_bytes) return std::nullopt;
  const auto size = smallest(kRam, *host_bytes);
  if (!size) return std::nullopt;
  return MemoryAnswer{.gpu = device, .ram = size, .host_bytes = *host_bytes};
}

/// RAM for a training on the host, with this device budget.
std::vector<MemoryAnswer> ram_of_host(TrainOptions options, const PlanContext& context,
                                      size_t device_bytes) {
  options.device_memory = device_bytes;
  const auto host_bytes = least_host_bytes(options, context);
  if (!host_bytes) return {};
  const size_t bytes = *host_bytes + device_bytes * planned_place(options).ranks_per_machine();
  const auto size = smallest(kRam, bytes);
  if (!size) return {};
  return {{.has_gpu = false, .ram = size, .host_bytes = bytes}};
}

}  // namespace

std::vector<MemoryAnswer> memory_that_fits(const TrainOptions& options, const PlanContext& context,
                                           const MemoryNeed& need) {
  const auto least_device = need.least_device_bytes;
  if (!least_device) return {};
  PlanContext elsewhere = context;
  elsewhere.is_here = false;  // other machines may have more memory
  if (context.total_memory_bytes) {
    const size_t bytes = options.device_memory.value_or(*least_device);
    if (bytes < *least_device) return {};  // more RAM does not help
    return ram_of_host(options, elsewhere, bytes);
  }
  std::vector<MemoryAnswer> answers;
  const auto add = [&answers](const std::optional<MemoryAnswer>& answer) {
    if (answer) answers.push_back(*answer);
  };
  const size_t device_bytes = options.device_memory.value_or(context.machine.device_memory_bytes);
  const bool device_fits = *least_device <= device_bytes;
  if (device_fits) {
    add(answer_with_ram(options, elsewhere, std::nullopt, need.least_host_bytes));
  }
  const size_t next_bytes = device_fits ? device_bytes + 1 : *least_device;
  if (const auto size = smallest_gpu_that_fits(options, elsewhere, next_bytes)) {
    add(MemoryAnswer{.gpu = size});
  }
  if (!answers.empty()) return answers;
  if (const auto size = smallest(kGpu, *least_device)) {
    add(answer_with_ram(options, elsewhere, size, std::nullopt));
  }
  return answers;
}

std::string memory_text(const MemoryAnswer& answer) {
  if (!answer.has_gpu) {
    return fmt::format("{} GB of RAM is enough (the run takes {})", answer.ram->gigabytes,
                       format_bytes(answer.host_bytes));
  }
  const std::string gpu =
      answer.gpu ? fmt::format("a GPU with {} GB", answer.gpu->gigabytes) : "this GPU";
  if (!answer.ram) return fmt::format("{} is enough, with this RAM", gpu);
  return fmt::format("{} GB of RAM is enough (the run takes {}), with {}", answer.ram->gigabytes,
                     format_bytes(answer.host_bytes), gpu);
}

}  // namespace ebb
