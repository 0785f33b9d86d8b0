// Kernels: what a device computes. Primitives and the optimizer submit kernels to a stream.
//
// A kernel is one struct in device/kernels/. Its fields are its arguments, and its member functions
// are all that Ebb knows about it:
//   check()            checks shapes and types, throws LogicError if they do not match, and returns
//                      the cost that is the same on every device (device/kernels/*.cpp)
//   run()              computes the kernel on the host (device/host/kernels/), or launches it on a
//                      GPU (cuda/kernels/, cuda/linear.cpp, cuda/attention.cpp)
//   workspace_bytes()  only for kernels that need scratch memory on this kind of device: its size.
//                      workspace_bytes() may also throw LogicError for sizes that this kind of
//                      device cannot compute. A kernel without scratch memory may have it only for
//                      that.
//   split()            only for kernels that do the work of two kernels in one: returns these two.
//                      A device that cannot compute the kernel in one submits the two instead.
// A new kernel is a struct with these functions and an entry in AnyKernel. A program that embeds
// Ebb has kernels without an entry: device/own_kernel.h.
//
//   kernels.submit(stream, Add{.y = y, .a = a, .b = b});
//
// submit() copies the struct. A kernel runs asynchronously on its stream and reads the memory that
// its arguments point to when it runs, so this memory must stay valid until then. Sums are fp32 or
// fp64. Results depend only on values and shapes: not on the number of threads, on earlier kernels
// or on addresses. On a GPU a product also depends on the alignment of its tensors up to 16 bytes.
// An index or a target outside of its table is an error of the data: on the host the kernel fails
// with LogicError; on a GPU it continues without reading outside of its tensors, and
// Stream::synchronize() of the compute stream throws LogicError. x, w and activations are fp32,
// bf16 or fp16, all of one type in a kernel. Statistics, losses and parameter gradients are fp32.
// Sizes: B sequences of T tokens, N rows (often N = B T), C channels.
#pragma once

#include <string>
#include <variant>
#include <vector>

#include "device/kernels/attention.h"
#include "device/kernels/elementwise.h"
#include "device/kernels/embedding.h"
#include "device/kernels/linear.h"
#include "device/kernels/loss.h"
#include "device/kernels/norm.h"
#include "device/kernels/softmax.h"
#include "device/kernels/update.h"
#include "device/own_kernel.h"
#include "device/stream.h"

namespace ebb {

/// One of all kernels, with its arguments. A struct, so that autograd/ can declare it without its
/// kernels.
struct AnyKernel
    : std::variant<LinearForward, LinearBackwardInput, ActivationLinearBackward,
                   LinearBackwardWeight, LayerNormForward, LayerNormBackward, RmsNormForward,
                   RmsNormBackward, HeadNormForward, HeadNormBackward, RotaryTable, ApplyRotary,
                   SwigluForward, SwigluBackward, ActivationForward, ActivationBackward,
                   SoftmaxForward, SoftmaxBackward, Add, Multiply, CopyColumns, Accumulate,
                   FillZero, ApplyDropout, EmbeddingForward, EmbeddingBackward, AttentionForward,
                   AttentionCached, AttentionBackward, CrossEntropy, CrossEntropyStatistics,
                   CrossEntropyGradient, MeanSquaredError, Sum, RoundGradient, SquaredNormPieces,
                   AdamWUpdate, OwnKernel> {
  using variant::variant;
};

/// The kernels of one device. One object serves one compute stream at a time.
class Kernels {
 public:
  virtual ~Kernels() = default;
  /// Checks the arguments, and submits the kernel to the stream. Throws LogicError if the arguments
  /// violate the contract of the kernel. Does not allocate, except for a GPU: its libraries make a
  /// plan for each new shape.
  virtual void submit(Stream& stream, const AnyKernel& kernel) = 0;
  /// The logits that classifier_cross_entropy() makes by default on this kind of device.
  virtual LogitsShape logits_shape() const = 0;
  /// Sentences for the user about the kernels submitted so far, for example that a slower kernel
  /// runs than DeviceInfo::name says. Each is returned once.
  virtual std::vector<std::string> take_notices() { return {}; }
};

/// The cost of a kernel on one kind of device: `launch` is its HostLaunch or GpuLaunch. Throws
/// LogicError if the arguments violate the contract of the kernel.
template <class Kernel, class Launch>
Cost cost_on(const Launch& launch, const Kernel& kernel) {
  Cost cost = kernel.check();
  if constexpr (requires { kernel.workspace_bytes(launch); }) {
    cost.workspace_bytes = kernel.workspace_bytes(launch);
  }
  return cost;
}

}  // namespace ebb
