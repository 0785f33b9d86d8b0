#include "cuda/attention.h"

#include <algorithm>
#include <string>
#include <utility>

#include "cuda/kernel_stream.h"
#include "cuda/kernels/gpu_launch.h"

namespace ebb {
namespace {

/// NVIDIA's cudnn-frontend says: cuDNN up to 9.15 needs the length of each row if the number of
/// tokens is not a multiple of the tile, and does not support rows of one token.
constexpr int64_t kTile = 128;

/// A library's backward stores the gradients of scores, 2 bytes for each pair of tokens and head,
/// so that its sums have a fixed order (docs/decisions.md). A part has as many heads of keys as fit
/// into kScoreBytes. A part of one head of keys may take more, because long rows need it and our
/// own kernel takes 15 times as long.
constexpr size_t kScoreBytes = size_t{256} << 20;
constexpr size_t kMostScoreBytes = size_t{2} << 30;

bool is_aligned(const void* data) { return reinterpret_cast<uintptr_t>(data) % 16 == 0; }

int64_t greatest_divisor(int64_t n, int64_t most) {
  int64_t divisor = std::min(n, most);
  while (n % divisor != 0) --divisor;
  return divisor;
}

BackwardPart sized(const AttentionOperands& f, const AttentionPart& part) {
  const int64_t group = f.group_size();
  const auto rows = static_cast<size_t>(part.num_rows * part.num_kv_heads * group * f.num_tokens);
  // The gradients of scores, and those of keys and values for each head of queries, before they are
  // added.
  const int64_t columns = f.num_tokens + (group > 1 ? 2 * f.head_size : 0);
  return {.part = part,
          .inner_bytes = rows * sizeof(float),
          .workspace_bytes =
              rows * static_cast<size_t>(columns) * size_of(f.dtype) + kAttentionWorkspaceBytes};
}

}  // namespace

bool is_library_attention(const AttentionOperands& f) {
  return f.dtype != DType::F32 && f.document_starts == nullptr && f.dropout.probability == 0.0f &&
         f.head_size % 8 == 0 && is_aligned(f.qkv) && is_aligned(f.out) &&
         is_aligned(f.log_sum_exp) && is_aligned(f.dout) && is_aligned(f.dqkv);
}

std::optional<BackwardPart> first_backward_part(const AttentionOperands& f) {
  if (!is_library_attention(f) || f.num_tokens % kTile != 0 || f.batch * f.num_tokens == 0) {
    return std::nullopt;
  }
  const auto head_bytes =
      static_cast<size_t>(f.num_tokens * f.num_tokens * f.group_size()) * size_of(f.dtype);
  if (head_bytes > kMostScoreBytes) return std::nullopt;
  const auto num_kv_heads = std::max<int64_t>(1, static_cast<int64_t>(kScoreBytes / head_bytes));
  if (num_kv_heads < f.num_kv_heads) {
    return sized(f,
                 {.num_rows = 1, .num_kv_heads = greatest_divisor(f.num_kv_heads, num_kv_heads)});
  }
  return sized(f, {.num_rows = greatest_divisor(f.batch, num_kv_heads / f.num_kv_heads),
                   .num_kv_heads = f.num_kv_heads});
}

uint64_t most_backward_kernels(const AttentionOperands& f) {
  constexpr uint64_t kMostOfPart = 8;  // our own backward starts four; assumed for cuDNN
  const auto first = first_backward_part(f);
  if (!first) return kUsualKernels;
  const int64_t num_parts =
      f.batch / first->part.num_rows * (f.num_kv_heads / first->part.num_kv_heads);
  return kMostOfPart * static_cast<uint64_t>(num_parts);
}

Attention::Attention(std::unique_ptr<AttentionLibrary> library)
    : library_(std::move(library)),
      counted_(library_ ? AttentionKernels::Cudnn : AttentionKernels::Ebb) {}

void Attention::forward(cudaStream_t stream, const AttentionOperands& f, std::byte* workspace,
                        DataError* error) {
  if (library_ && is_library_attention(f) && library_->can_attend(f, kAttentionWorkspaceBytes)) {
    return library_->forward(stream, f, {workspace, kAttentionWorkspaceBytes});
  }
  notice_ours(false, f);
  cuda::check_documents(stream, f, error);
  cuda::attention_forward(stream, f);
}

void Attention::backward(cudaStream_t stream, const AttentionOperands& f, std::byte* workspace,
                         DataError* error) {
  if (library_ && submit_to_library(stream, f, workspace)) return;
  notice_ours(true, f);
  AttentionOperands with_inner = f;
  with_inner.inner = reinterpret_cast<float*>(workspace);
  cuda::check_documents(stream, f, error);
  cuda::attention_backward(stream, with_inner);
}

void Attention::notice_ours(bool backward, const AttentionOperands& f) {
  const Noticed shape = {backward, f.batch, f.num_tokens, f.num_heads, f.head_size};
  if (!library_ || !noticed_.insert(shape).second) return;
  notices_.push_back("the " + std::string(backward ? "backward" : "forward") + " of attention (" +
                     std::to_string(f.batch) + " x " + std::to_string(f.num_tokens) + " tokens, " +
                     std::to_string(f.num_heads) + " heads of " + std::to_string(f.head_size) +
                     " channels) uses Ebb's own kernel: the library has none for it");
}

size_t Attention::backward_workspace_bytes(const AttentionOperands& f) const {
  const size_t ours = static_cast<size_t>(f.batch * f.num_heads * f.num_tokens) * sizeof(float);
  const auto part = counted_ == AttentionKernels::Ebb ? std::nullopt : first_backward_part(f);
  return std::max(ours, part ? part->inner_bytes + part->workspace_bytes : 0);
}

bool Attention::submit_to_library(cudaStream_t stream, const AttentionOperands& f,
                                  std::byte* workspace) {
  const auto first = first_backward_part(f);
  if (!first || !library_->can_differentiate(f, first->part, first->workspace_bytes)) return false;
  AttentionOperands with_inner = f;
  with_inner.inner = reinterpret_cast<float*>(workspace);
  const std::span<std::byte> rest = {workspace + first->inner_bytes, first->workspace_bytes};
  for (AttentionPart part = first->part; part.row < f.batch; part.row += part.num_rows) {
    for (part.kv_head = 0; part.kv_head < f.num_kv_heads; part.kv_head += part.num_kv_heads) {
      library_->backward(stream, with_inner, part, rest);
    }
  }
  return true;
}

size_t AttentionForward::workspace_bytes(const GpuLaunch&) const {
  cuda::check_head_size("attention", operands().head_size);
  return kAttentionWorkspaceBytes;
}

void AttentionForward::run(const GpuLaunch& gpu) const {
  gpu.attention->forward(gpu.stream, operands(), gpu.scratch<std::byte>(kAttentionWorkspaceBytes),
                         gpu.data_error);
}

/// The GPU's AttentionCached::run() is in cuda/kernels/attention_cached.cu.
size_t AttentionCached::workspace_bytes(const GpuLaunch&) const {
  cuda::check_head_size("attention", operands().head_size);
  return 0;
}

size_t AttentionBackward::workspace_bytes(const GpuLaunch& gpu) const {
  const AttentionOperands f = operands();
  cuda::check_head_size("attention", f.head_size);
  return gpu.attention->backward_workspace_bytes(f);
}

void AttentionBackward::run(const GpuLaunch& gpu) const {
  const AttentionOperands f = operands();
  const size_t bytes = gpu.attention->backward_workspace_bytes(f);
  gpu.attention->backward(gpu.stream, f, gpu.scratch<std::byte>(bytes), gpu.data_error);
}

}  // namespace ebb
