// Attention on a GPU: a library's where there is one that has kernels for it, and our own. Not
// thread-safe: one object serves one compute stream.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>

#include "cuda/attention_library.h"
#include "device/device.h"

namespace ebb {

/// The most that a library's call may use beside what follows from its shape: counters of a kernel
/// that hands out tiles (256 B on an H100), and no sums of parts.
inline constexpr size_t kAttentionWorkspaceBytes = size_t{4} << 10;

/// Is this said in a library's words? Not documents, dropout or fp32.
bool is_library_attention(const cuda::AttentionLaunch& f);

/// A part of a library's backward, and what it takes.
struct BackwardPart {
  AttentionPart part;
  size_t inner_bytes = 0;  ///< of sums of dout times out
  size_t workspace_bytes = 0;
};
/// The first of equal parts; none where a head of keys alone stores too much, or where libraries
/// are not asked.
std::optional<BackwardPart> first_backward_part(const cuda::AttentionLaunch& f);

class Attention {
 public:
  /// `library`: null for our own kernels alone.
  explicit Attention(std::unique_ptr<AttentionLibrary> library);
  /// Counts workspace alone.
  explicit Attention(AttentionKernels counted) : counted_(counted) {}

  /// `workspace`: kAttentionWorkspaceBytes. Throw DeviceError.
  void forward(cudaStream_t stream, const cuda::AttentionLaunch& f, std::byte* workspace,
               DataError* error);
  /// `workspace`: backward_workspace_bytes(f).
  void backward(cudaStream_t stream, const cuda::AttentionLaunch& f, std::byte* workspace,
                DataError* error);
  [[nodiscard]] size_t backward_workspace_bytes(const cuda::AttentionLaunch& f) const;

 private:
  /// Does nothing and returns false where the library has no kernel for it.
  bool submit_to_library(cudaStream_t stream, const cuda::AttentionLaunch& f, std::byte* workspace);

  const std::unique_ptr<AttentionLibrary> library_;
  const AttentionKernels counted_;
};

}  // namespace ebb
