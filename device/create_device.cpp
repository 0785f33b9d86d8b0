#include "device/backends.h"
#include "device/device.h"
#include "device/errors.h"

namespace ebb {
namespace {

void check_emulation(const DeviceOptions& options) {
  if (!options.emulate_compute) return;
  if (options.profile.kind != DeviceKind::Host) {
    throw ConfigError("only the host device supports emulated compute");
  }
  if (!(options.emulate_compute->flops_per_s > 0) || !(options.emulate_compute->bytes_per_s >= 0)) {
    throw ConfigError(
        "the rates of emulated compute must be above 0 FLOP/s, and 0 bytes/s (no limit) or more");
  }
  if (options.poison) {
    throw ConfigError(
        "poison cannot be used with emulated compute: kernels that compute nothing do not "
        "overwrite it");
  }
}

}  // namespace

std::unique_ptr<Device> create_device(const DeviceOptions& options) {
  if (options.profile.num_threads < 0) throw ConfigError("the number of threads must be 0 or more");
  if (options.load_bytes_per_s < 0 || options.store_bytes_per_s < 0) {
    throw ConfigError("the bandwidth of a link must be 0 (not emulated) or more");
  }
  check_emulation(options);
  switch (options.profile.kind) {
    case DeviceKind::Host:
      return create_host_device(options);
    case DeviceKind::Sim:
      return create_sim_device(options);
    case DeviceKind::Cuda:
      return create_cuda_device(options);
  }
  throw ConfigError("unknown device kind");
}

}  // namespace ebb
