#include "scheduler/search/options.h"

#include <fmt/format.h>

#include <string_view>

#include "device/errors.h"

namespace ebb {
namespace {

constexpr std::string_view kPassProfile =
    "pass DeviceInfo::profile in Budgets::device when the plan is made";

}  // namespace

void check_device(const DeviceProfile& planned, const DeviceProfile& device) {
  if (device.num_threads > planned.num_threads) {
    throw ConfigError(
        fmt::format("the device has {} threads, but the plan's workspace is for {}; {}",
                    device.num_threads, planned.num_threads, kPassProfile));
  }
  if (device.kind == DeviceKind::Cuda && planned.kind != DeviceKind::Cuda) {
    throw ConfigError(fmt::format(
        "the plan's workspace is for a host device, but the device is a GPU; {}", kPassProfile));
  }
  if (device.attention == AttentionKernels::Cudnn && planned.attention == AttentionKernels::Ebb) {
    throw ConfigError(
        fmt::format("the plan's workspace is for Ebb's attention kernels, but the device uses "
                    "those of cuDNN; {}",
                    kPassProfile));
  }
}

TapeOptions tape_options(const TrainerOptions& options, const Schedule& schedule,
                         std::span<const LayerRecompute> layers, bool training, uint32_t step) {
  return {.training = training,
          .layers = layers,
          .layers_at_once = schedule.recompute.layers_at_once,
          .mark_idle = schedule.activations == ActivationPlacement::Offload,
          .dropout = {.probability = options.dropout,
                      .key = random_key(options.seed, RandomUse::Dropout),
                      .step = step}};
}

uint32_t micro_batches_together(const Schedule& schedule, uint32_t count) {
  return schedule.micro_batch_order == MicroBatchOrder::Vertical ? count : 1;
}

}  // namespace ebb
