// A device that passes every call on to another device. A benchmark derives from it to replace one
// function.
#pragma once

#include <memory>
#include <utility>

#include "device/device.h"

namespace ebb::bench {

class ForwardingDevice : public Device {
 public:
  explicit ForwardingDevice(std::unique_ptr<Device> device) : device_(std::move(device)) {}
  const DeviceInfo& info() const override { return device_->info(); }
  Buffer allocate(MemoryKind kind, size_t bytes, std::string_view tag) override {
    return device_->allocate(kind, bytes, tag);
  }
  std::unique_ptr<Blocks> create_blocks(size_t block_bytes, uint32_t num_blocks) override {
    return device_->create_blocks(block_bytes, num_blocks);
  }
  void reserve_workspace(size_t bytes) override { device_->reserve_workspace(bytes); }
  std::unique_ptr<Stream> create_stream(StreamKind role) override {
    return device_->create_stream(role);
  }
  std::unique_ptr<Event> create_event() override { return device_->create_event(); }
  Kernels& kernels() override { return device_->kernels(); }
  size_t used_bytes() const override { return device_->used_bytes(); }
  size_t peak_bytes() const override { return device_->peak_bytes(); }
  uint64_t num_allocations() const override { return device_->num_allocations(); }
  double now_s() const override { return device_->now_s(); }

 private:
  void free(MemoryKind, std::byte*, size_t) noexcept override {}  // buffers belong to `device_`
  std::unique_ptr<Device> device_;
};

}  // namespace ebb::bench
