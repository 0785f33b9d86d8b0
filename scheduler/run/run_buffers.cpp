#include "scheduler/run/run_buffers.h"

#include <fmt/format.h>

#include <cstring>

#include "autograd/arena.h"
#include "device/errors.h"

namespace ebb {

RunBuffers::RunBuffers(Device& device, size_t input_bytes, uint32_t num_losses)
    : num_losses_(num_losses),
      host_inputs_(device.allocate(MemoryKind::Pinned, input_bytes, "inputs")),
      host_losses_(device.allocate(MemoryKind::Pinned, num_losses * sizeof(double), "losses")),
      device_inputs_(device.allocate(MemoryKind::Device, input_bytes, "inputs")),
      device_losses_(device.allocate(MemoryKind::Device, num_losses * sizeof(double), "losses")),
      inputs_ready_(device.create_event()),
      losses_ready_(device.create_event()) {}

void RunBuffers::clear() {
  inputs_.clear();
  used_bytes_ = 0;
}

void RunBuffers::add_input(const InputSpec& spec, const Tensor& values) {
  EBB_CHECK_SHAPES(values.dtype == spec.dtype && values.shape == spec.shape,
                   fmt::format("input '{}' is {} {}, not {}", spec.name, to_string(spec.shape),
                               name_of(spec.dtype), to_string(values)));
  EBB_CHECK(used_bytes_ + values.bytes() <= host_inputs_.bytes(),
            fmt::format("input '{}' ends at byte {}, but the buffer for inputs has {} bytes",
                        spec.name, used_bytes_ + values.bytes(), host_inputs_.bytes()));
  std::memcpy(host_inputs_.data() + used_bytes_, values.data, values.bytes());
  inputs_.push_back({device_inputs_.data() + used_bytes_, values.dtype, values.shape});
  used_bytes_ += padded_bytes(values.bytes());
}

void RunBuffers::upload(Stream& load, Stream& compute) {
  load.copy(device_inputs_.data(), host_inputs_.data(), used_bytes_, CopyKind::Load);
  load.record(*inputs_ready_);
  compute.wait(*inputs_ready_);
}

void RunBuffers::download_losses(Stream& compute, Stream& store) {
  compute.record(*losses_ready_);
  store.wait(*losses_ready_);
  store.copy(host_losses_.data(), device_losses_.data(), host_losses_.bytes(), CopyKind::Store);
}

}  // namespace ebb
