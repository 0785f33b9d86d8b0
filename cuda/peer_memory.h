// Memory of a GPU that other GPUs of the machine read, in this process or in another one.
//
// Between processes the memory has an interprocess handle. In one process its address is used.
// Source: CUDA Programming Guide, "Peer-to-Peer Memory Access" and "Interprocess Communication".
//
// Thread-safe. Errors: DeviceError.
#pragma once

#include <cstddef>
#include <memory>

#include "device/device.h"

namespace ebb {

/// The name of memory of cudaMalloc() on the GPU `index`, which is the current one. REQUIRES:
/// `memory` is the beginning of an allocation of whole pages of 2 MiB, which CUDA shares as a
/// whole.
MemoryName name_of_gpu_memory(const std::byte* memory, int index);

/// Makes the memory readable by the GPU `index`, which is the current one of this thread. Memory of
/// another process is readable as long as the result lives, memory of this process as long as it is
/// allocated.
std::shared_ptr<const std::byte> open_gpu_memory(const MemoryName& name, int index);

}  // namespace ebb
