// A kernel of your own: a struct like Ebb's kernels (device/kernels.h), for a primitive that Ebb
// does not have.
//
//   struct SwishForward {
//     ebb::Tensor y, x;
//
//     ebb::Cost check() const;               // throws ShapeError if y and x do not fit together
//     void run(ebb::ThreadTeam& team) const; // computes y on the host
//     void run(ebb::GpuStream stream) const; // launches a CUDA kernel that computes y
//   };
//
// Its fields are its arguments: views and numbers of at most OwnKernel::kMostBytes. One of the two
// run() may be missing; Ebb then refuses devices of that kind when it makes the plan.
//
// check() also returns the cost: the work for which a plan must find time, and a name, which has
// static storage. The memory of the arguments is valid until the kernel has run. The results must
// depend on values and shapes alone, not on addresses and not on the number of threads. On the host
// run() is called by the thread of the stream, one kernel after the other; system/parallel_loop.h
// divides its work. On a GPU it is called by the submitting thread, with the GPU current: it
// launches on the stream, returns at once, neither waits nor allocates, and throws DeviceError if
// CUDA refuses the launch.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstring>
#include <new>
#include <string_view>
#include <type_traits>

#include "device/errors.h"
#include "device/stream.h"

struct CUstream_st;

namespace ebb {

class ThreadTeam;  // system/thread_team.h
struct HostLaunch;
struct GpuLaunch;

/// The same type as cudaStream_t.
using GpuStream = CUstream_st*;

template <class Kernel>
concept RunsOnHost = requires(const Kernel& kernel, ThreadTeam& team) {
  kernel.run(team);
};
template <class Kernel>
concept RunsOnGpu = requires(const Kernel& kernel, GpuStream stream) {
  kernel.run(stream);
};
template <class Kernel>
concept IsOwnKernel = requires(const Kernel& kernel) {
  { kernel.check() } -> std::same_as<Cost>;
}
&&(RunsOnHost<Kernel> || RunsOnGpu<Kernel>);

/// Any such struct, as an entry of AnyKernel.
class OwnKernel {
 public:
  static constexpr size_t kMostBytes = 384;

  template <IsOwnKernel Kernel>
  OwnKernel(const Kernel& kernel) : functions_(&kFunctions<Kernel>) {  // NOLINT: implicit
    static_assert(sizeof(Kernel) <= kMostBytes, "too many arguments; capture views and numbers");
    static_assert(alignof(Kernel) <= alignof(std::max_align_t));
    static_assert(std::is_trivially_copyable_v<Kernel>, "capture views and values, not owners");
    ::new (static_cast<void*>(storage_)) Kernel(kernel);
  }

  Cost check() const { return functions_->check(storage_); }
  /// No workspace: a primitive takes its scratch memory from the tape. Throws ConfigError if the
  /// kernel cannot run on this kind of device.
  size_t workspace_bytes(const HostLaunch&) const;
  size_t workspace_bytes(const GpuLaunch&) const;
  void run(const HostLaunch& host) const;
  void run(const GpuLaunch& gpu) const;

 private:
  struct Functions {
    Cost (*check)(const void*);
    void (*run_on_host)(const void*, ThreadTeam&);  // null: there is none
    void (*run_on_gpu)(const void*, GpuStream);
  };
  template <class Kernel>
  static const Kernel& from(const void* storage) {
    return *std::launder(static_cast<const Kernel*>(storage));
  }
  template <class Kernel>
  static constexpr Functions functions_of() {
    Functions functions = {[](const void* k) { return from<Kernel>(k).check(); }, nullptr, nullptr};
    if constexpr (RunsOnHost<Kernel>) {
      functions.run_on_host = [](const void* k, ThreadTeam& team) { from<Kernel>(k).run(team); };
    }
    if constexpr (RunsOnGpu<Kernel>) {
      functions.run_on_gpu = [](const void* k, GpuStream stream) { from<Kernel>(k).run(stream); };
    }
    return functions;
  }
  template <class Kernel>
  static constexpr Functions kFunctions = functions_of<Kernel>();

  alignas(std::max_align_t) std::byte storage_[kMostBytes] = {};
  const Functions* functions_;
};

}  // namespace ebb
