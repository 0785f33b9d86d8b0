// The interface to a library that computes attention (cuDNN). Tests on the emulated GPU replace the
// library by plain loops.
//
// Which calls the library computes follows from shapes, types, the GPU and the library, never from
// timing. So results have the same bits in every run on such a GPU. The library rounds the softmax
// weights, and in the backward the gradients of scores, to the tensors' 16-bit type before it
// multiplies them; our own kernels keep more bits. Not thread-safe: one object serves one compute
// stream.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>

#include "cuda/kernels/gpu_launch.h"

namespace ebb {

/// The work of one call of the backward: either some rows of the batch with all their heads, or
/// some heads of keys of one row with the heads of queries that read them.
struct AttentionPart {
  int64_t row = 0, num_rows = 0, kv_head = 0, num_kv_heads = 0;
};

/// The offsets of a part, in elements from the beginning of each tensor.
struct AttentionPlaces {
  int64_t queries, keys, values, out, sums;

  AttentionPlaces(const AttentionOperands& f, const AttentionPart& part) {
    const int64_t token = part.row * f.num_tokens;
    const int64_t head = part.kv_head * f.group_size();
    queries = token * f.qkv_columns() + head * f.head_size;
    keys = token * f.qkv_columns() + (f.num_heads + part.kv_head) * f.head_size;
    values = keys + f.num_kv_heads * f.head_size;
    out = (token * f.num_heads + head) * f.head_size;
    sums = (part.row * f.num_heads + head) * f.num_tokens;
  }
};

/// All methods REQUIRE is_library_attention(f) (cuda/attention.h), and throw DeviceError.
class AttentionLibrary {
 public:
  virtual ~AttentionLibrary() = default;
  /// Has the library a forward, or a backward of `part`, that needs at most `workspace_bytes`?
  [[nodiscard]] virtual bool can_attend(const AttentionOperands& f, size_t workspace_bytes) = 0;
  [[nodiscard]] virtual bool can_differentiate(const AttentionOperands& f,
                                               const AttentionPart& part,
                                               size_t workspace_bytes) = 0;
  /// Submits the forward. REQUIRES: can_attend() with the size of `workspace`.
  virtual void forward(cudaStream_t stream, const AttentionOperands& f,
                       std::span<std::byte> workspace) = 0;
  /// Submits the backward of one part, and writes the gradients of that part only. `f.inner` is the
  /// memory of this part. REQUIRES: can_differentiate() with the size of `workspace`.
  virtual void backward(cudaStream_t stream, const AttentionOperands& f, const AttentionPart& part,
                        std::span<std::byte> workspace) = 0;
};

/// The name and version of the library, for example "cuDNN 9.19.0"; empty if no suitable library is
/// found. Needs no GPU.
std::string attention_library_name();

/// Starts the library for the current device of this thread. REQUIRES: attention_library_name() is
/// not empty. Throws ConfigError if the library does not start with this GPU or its driver.
std::unique_ptr<AttentionLibrary> create_attention_library();

}  // namespace ebb
