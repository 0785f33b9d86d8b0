// Forward attention by a library, where there is one: the seam to cuDNN, which the tests' emulation
// replaces by plain loops.
//
// What it takes on follows from shapes, types, alignments, the GPU and the library, never from
// timing: the same bits whenever it runs on such a GPU. Weights are rounded to the tensors' 16 bits
// before they meet the values, where our own kernels keep them whole. Backward is ours: it needs
// nothing but the result and its log-sum-exp. Not thread-safe: one object serves one compute
// stream.
#pragma once

#include <cstddef>
#include <memory>
#include <string>

#include "cuda/kernels/launches.h"

namespace ebb {

class AttentionLibrary {
 public:
  virtual ~AttentionLibrary() = default;
  /// Whether forward() does this. Never what it has no words for: documents, dropout, fp32.
  [[nodiscard]] virtual bool can_attend(const cuda::AttentionLaunch& f) = 0;
  /// Submits it. `workspace`: kAttentionWorkspaceBytes on the device. REQUIRES: can_attend(f).
  /// Throws DeviceError.
  virtual void forward(cudaStream_t stream, const cuda::AttentionLaunch& f,
                       std::byte* workspace) = 0;
};

/// The most that it may use: counters of a kernel that hands out tiles (256 B on an H100), and no
/// sums of parts.
inline constexpr size_t kAttentionWorkspaceBytes = size_t{4} << 10;

/// "cuDNN 9.19.0"; empty where none is found that will do. Needs no GPU.
std::string attention_library_name();

/// For the GPU that this thread uses. REQUIRES: attention_library_name() is not empty. Throws
/// ConfigError where the library does not start with this GPU or its driver.
std::unique_ptr<AttentionLibrary> create_attention_library();

}  // namespace ebb
