// Attention on a GPU. A call uses the library's kernels where a library is loaded and has a kernel
// for the call, and our own kernels otherwise. Not thread-safe: one object serves one compute
// stream.
#pragma once

#include <array>
#include <cstddef>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "cuda/attention_library.h"
#include "device/device.h"

namespace ebb {

/// The largest workspace of a library's call, in addition to what follows from its shape. It is
/// enough for the counters of a kernel that distributes tiles (256 B on an H100), and too small for
/// partial sums, whose order could vary.
inline constexpr size_t kAttentionWorkspaceBytes = size_t{4} << 10;

/// Can a library compute this attention at all? It cannot if there are documents or dropout, or if
/// the type is fp32.
bool is_library_attention(const AttentionOperands& f);

/// One part of a backward that a library computes in parts, and the memory that the part needs.
struct BackwardPart {
  AttentionPart part;
  size_t inner_bytes = 0;  ///< of the sums of dout times out
  size_t workspace_bytes = 0;
};
/// Returns the first part of the backward; all parts have this size. Returns nullopt if no library
/// can compute `f`, if the number of tokens is 0 or not a multiple of the library's tile, or if one
/// head of keys alone needs more memory than a part may use.
std::optional<BackwardPart> first_backward_part(const AttentionOperands& f);

/// An upper bound for the number of kernels that the backward starts, with a library or without
/// one.
uint64_t most_backward_kernels(const AttentionOperands& f);

class Attention {
 public:
  /// `library`: null to use our own kernels only.
  explicit Attention(std::unique_ptr<AttentionLibrary> library);
  /// Computes nothing. Only backward_workspace_bytes() may be called, for the kernels of `counted`.
  explicit Attention(AttentionKernels counted) : counted_(counted) {}

  /// Submits the forward. `workspace`: kAttentionWorkspaceBytes. An invalid document start is
  /// recorded in `error`. Throws DeviceError.
  void forward(cudaStream_t stream, const AttentionOperands& f, std::byte* workspace,
               DataError* error);
  /// Submits the backward. `workspace`: backward_workspace_bytes(f). Errors: as forward().
  void backward(cudaStream_t stream, const AttentionOperands& f, std::byte* workspace,
                DataError* error);
  [[nodiscard]] size_t backward_workspace_bytes(const AttentionOperands& f) const;

  /// A sentence for each shape whose forward or backward our own kernels computed although a
  /// library is loaded. Each is returned once.
  std::vector<std::string> take_notices() { return std::exchange(notices_, {}); }

 private:
  /// The properties of a call that a notice has: backward or not, and sizes.
  using Noticed = std::array<int64_t, 5>;
  /// Adds a notice that our own kernels compute `f`, once for each shape.
  void notice_ours(bool backward, const AttentionOperands& f);
  /// Submits the backward to the library. Returns false, and submits nothing, if the library has no
  /// kernel for it.
  bool submit_to_library(cudaStream_t stream, const AttentionOperands& f, std::byte* workspace);

  const std::unique_ptr<AttentionLibrary> library_;
  const AttentionKernels counted_;
  std::set<Noticed> noticed_;
  std::vector<std::string> notices_;
};

}  // namespace ebb
