#include "scheduler/search/options.h"

#include <fmt/format.h>

#include "device/errors.h"

namespace ebb {

void check_device(const DeviceProfile& planned, const DeviceProfile& device) {
  if (device.num_threads > planned.num_threads) {
    throw ConfigError(
        fmt::format("the device has {} threads, but the plan's workspace is for {}; pass "
                    "DeviceInfo::profile to prepare() in Budgets::device",
                    device.num_threads, planned.num_threads));
  }
  if (device.kind == DeviceKind::Cuda && planned.kind != DeviceKind::Cuda) {
    throw ConfigError(
        "the plan's workspace is for a host device, but the device is a GPU; pass "
        "DeviceInfo::profile to prepare() in Budgets::device");
  }
  if (device.attention == AttentionKernels::Cudnn && planned.attention == AttentionKernels::Ebb) {
    throw ConfigError(
        "the plan's workspace is for Ebb's attention kernels, but the device uses those of cuDNN; "
        "pass DeviceInfo::profile to prepare() in Budgets::device");
  }
}

TapeOptions tape_options(const TrainerOptions& options, const Schedule& schedule, bool training,
                         uint32_t step) {
  return {.training = training,
          .recompute = schedule.recompute.layers_at_once,
          .recomputed_layers = schedule.recompute.first,
          .recomputed_of = schedule.recompute.of,
          .mark_idle = schedule.activations == ActivationPlacement::Offload,
          .dropout = {.probability = options.dropout,
                      .key = random_key(options.seed, RandomUse::Dropout),
                      .step = step}};
}

uint32_t micro_batches_together(const Schedule& schedule, uint32_t count) {
  return schedule.micro_batch_order == MicroBatchOrder::Vertical ? count : 1;
}

}  // namespace ebb
