// The inputs and the loss of a run: buffers in pinned host memory and on the device, and the copies
// between them.
//
// Not thread-safe.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "autograd/model.h"
#include "device/device.h"

namespace ebb {

class RunBuffers {
 public:
  /// `input_bytes`: the bytes of all inputs of a run, each rounded up by padded_bytes()
  /// (autograd/arena.h).
  RunBuffers(Device& device, size_t input_bytes, uint32_t num_losses);

  /// Forgets all inputs, persistent ones too. REQUIRES: the copy of the last upload() is done.
  void clear();
  /// Adds the next input, and copies its values into pinned memory. Throws LogicError if the type
  /// or the shape of `values` is not that of `spec`, or if all inputs together have more than
  /// `input_bytes` bytes. REQUIRES: `values` is in host memory.
  void add_input(const InputSpec& spec, const Tensor& values);
  /// Adds an input that is on the device already. Its memory must live until the run is over.
  void add_persistent(const Tensor& on_device) { inputs_.push_back(on_device); }
  /// Submits the copy of all added inputs to the device. Work that is submitted to `compute` later
  /// waits for it.
  void upload(Stream& load, Stream& compute);
  /// The inputs on the device, in the order in which they were added.
  std::span<const Tensor> inputs() const { return inputs_; }

  /// (num_losses) fp64 on the device: the sum of the losses of each micro-batch of a run. The
  /// program stores them.
  Tensor device_losses() const {
    return {device_losses_.data(), DType::F64, {static_cast<int64_t>(num_losses_)}};
  }
  /// Submits the copy of the losses to the host, after the work on `compute` so far.
  void download_losses(Stream& compute, Stream& store);
  /// The losses on the host. REQUIRES: the copy is done.
  std::span<const double> losses() const {
    return {reinterpret_cast<const double*>(host_losses_.data()), num_losses_};
  }

 private:
  size_t num_losses_;
  Buffer host_inputs_, host_losses_, device_inputs_, device_losses_;
  std::unique_ptr<Event> inputs_ready_, losses_ready_;
  std::vector<Tensor> inputs_;
  size_t used_bytes_ = 0;  // of the added inputs
};

}  // namespace ebb
