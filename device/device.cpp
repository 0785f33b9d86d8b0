#include "device/device.h"

#include <utility>

#include "device/errors.h"

namespace ebb {

std::string_view name_of(MemoryKind kind) {
  static constexpr std::string_view kNames[] = {"device", "pinned", "host", "home", "shared"};
  return kNames[static_cast<int>(kind)];
}

Buffer& Buffer::operator=(Buffer&& other) noexcept {
  if (this == &other) return *this;
  if (data_ != nullptr) device_->free(kind_, data_, bytes_);
  device_ = std::exchange(other.device_, nullptr);
  kind_ = other.kind_;
  data_ = std::exchange(other.data_, nullptr);
  bytes_ = std::exchange(other.bytes_, 0);
  return *this;
}

Buffer::~Buffer() {
  if (data_ != nullptr) device_->free(kind_, data_, bytes_);
}

MemoryName Device::memory_name(const Buffer&) {
  throw LogicError("other devices cannot read the memory of this kind of device");
}

std::shared_ptr<const std::byte> Device::open_memory(const MemoryName&) {
  throw LogicError("this kind of device cannot read the memory of other devices");
}

}  // namespace ebb
