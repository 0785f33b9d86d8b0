#include "tools/inference_changes.h"

#include <fmt/format.h>

#include <optional>
#include <utility>

#include "device/errors.h"
#include "tools/size_parse.h"
#include "tools/train_setup.h"

namespace ebb {
namespace {

/// A change, in steps of growing size: the first that fits counts.
using Alternatives = std::vector<std::pair<std::string, InferenceFlags>>;

Alternatives as_bf16(InferenceFlags flags) {
  if (flags.options.dtype == DType::BF16) return {};
  flags.options.dtype = DType::BF16;
  return {{"--dtype bf16", flags}};
}

Alternatives smaller_micro_batches(InferenceFlags flags) {
  Alternatives all;
  while (flags.options.micro_batch_size > 1) {
    flags.options.micro_batch_size /= 2;
    all.emplace_back(fmt::format("--micro-batch-size {}", flags.options.micro_batch_size), flags);
  }
  return all;
}

Alternatives fewer_tokens(InferenceFlags flags) {
  Alternatives all;
  while (flags.max_tokens > 1) {
    flags.max_tokens /= 2;
    all.emplace_back(fmt::format("--max-tokens {}", flags.max_tokens), flags);
  }
  return all;
}

Alternatives smaller_chunks(InferenceFlags flags) {
  constexpr size_t kSmallest = size_t{2} << 20;
  Alternatives all;
  size_t& bytes = flags.options.chunk_size;
  while (bytes % 2 == 0 && bytes / 2 >= kSmallest) {
    bytes /= 2;
    all.emplace_back(fmt::format("--chunk-size {}", flag_size(bytes)), flags);
  }
  return all;
}

/// Of the device, of home, or of both: what is planned without limits takes so much.
Alternatives other_budgets(const InferenceFlags& requested, const DeviceOptions& device,
                           const PlanInference& plan) {
  InferenceFlags open = requested;
  open.options.device_memory.reset();
  open.options.host_memory.reset();
  const std::optional<size_t> free = budgets_of(open.options, device).device_memory;  // of a GPU
  const PreparedInference p =
      plan(open, {.num_threads = static_cast<int>(requested.options.threads),
                  .device = device.kind,
                  .pinned_memory = device.pinned_bytes});
  if (free && *free < p.smallest_device_bytes) return {};
  const std::string on_device = "--device-memory " + flag_size(p.smallest_device_bytes);
  const std::string at_home = "--host-memory " + flag_size(p.ledger.total(Tier::Host));
  InferenceFlags device_flag = requested, home_flag = requested;
  device_flag.options.device_memory = p.smallest_device_bytes;
  home_flag.options.host_memory = p.ledger.total(Tier::Host);
  InferenceFlags both = device_flag;
  both.options.host_memory = home_flag.options.host_memory;
  return {{on_device, device_flag}, {at_home, home_flag}, {on_device + " " + at_home, both}};
}

bool fits(const InferenceFlags& flags, const DeviceOptions& device, const PlanInference& plan) {
  try {
    plan(flags, budgets_of(flags.options, device));
    return true;
  } catch (const ConfigError&) {  // PlanErrors, and what cannot be with other flags
    return false;
  }
}

}  // namespace

std::vector<std::string> changes_that_fit(const InferenceFlags& requested,
                                          const DeviceOptions& device, const PlanInference& plan) {
  std::vector<std::string> changes;
  for (const Alternatives& alternatives :
       {as_bf16(requested), smaller_micro_batches(requested), fewer_tokens(requested),
        smaller_chunks(requested), other_budgets(requested, device, plan)}) {
    for (const auto& [text, flags] : alternatives) {
      if (!fits(flags, device, plan)) continue;
      changes.push_back(text);
      break;
    }
  }
  return changes;
}

}  // namespace ebb
