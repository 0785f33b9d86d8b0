// Attention by a library, where there is one: the seam to cuDNN, which the tests' emulation
// replaces by plain loops.
//
// What it takes on follows from shapes, types, the GPU and the library, never from timing: the same
// bits whenever it runs on such a GPU. Weights, and backward the gradients of scores, are rounded
// to the tensors' 16 bits before they are multiplied, where our own kernels keep more. Not
// thread-safe: one object serves one compute stream.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>

#include "cuda/kernels/launches.h"

namespace ebb {

/// What one call of the backward takes on: rows of the batch with all their heads, or heads of keys
/// of one row with the heads of queries that read them.
struct AttentionPart {
  int64_t row = 0, num_rows = 0, kv_head = 0, num_kv_heads = 0;
};

/// Where a part lies, in elements from the beginning of each tensor.
struct AttentionPlaces {
  int64_t queries, keys, values, out, sums;

  AttentionPlaces(const cuda::AttentionLaunch& f, const AttentionPart& part) {
    const int64_t token = part.row * f.num_tokens;
    const int64_t head = part.kv_head * f.group();
    queries = token * f.qkv_columns() + head * f.head_size;
    keys = token * f.qkv_columns() + (f.num_heads + part.kv_head) * f.head_size;
    values = keys + f.num_kv_heads * f.head_size;
    out = (token * f.num_heads + head) * f.head_size;
    sums = (part.row * f.num_heads + head) * f.num_tokens;
  }
};

/// Its calls REQUIRE is_library_attention(f) (cuda/attention.h), and throw DeviceError.
class AttentionLibrary {
 public:
  virtual ~AttentionLibrary() = default;
  /// With workspace of so many bytes.
  [[nodiscard]] virtual bool can_attend(const cuda::AttentionLaunch& f, size_t workspace_bytes) = 0;
  [[nodiscard]] virtual bool can_differentiate(const cuda::AttentionLaunch& f,
                                               const AttentionPart& part,
                                               size_t workspace_bytes) = 0;
  /// Submit it. REQUIRES that they can, with as much workspace.
  virtual void forward(cudaStream_t stream, const cuda::AttentionLaunch& f,
                       std::span<std::byte> workspace) = 0;
  /// Of one part, whose gradients it writes; f.inner are the part's.
  virtual void backward(cudaStream_t stream, const cuda::AttentionLaunch& f,
                        const AttentionPart& part, std::span<std::byte> workspace) = 0;
};

/// "cuDNN 9.19.0"; empty where none is found that will do. Needs no GPU.
std::string attention_library_name();

/// For the GPU that this thread uses. REQUIRES: attention_library_name() is not empty. Throws
/// ConfigError where the library does not start with this GPU or its driver.
std::unique_ptr<AttentionLibrary> create_attention_library();

}  // namespace ebb
