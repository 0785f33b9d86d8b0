// Tests the parts in which a library computes the backward of attention.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "cuda/attention.h"
#include "tests/cuda_emulation/attention_operands.h"

namespace ebb::test::tests_of_attention_parts {
namespace {

constexpr size_t kMiB = size_t{1} << 20;

TEST(AttentionParts, AreRowsOrHeadsThatDivideTheBatch) {
  const auto expect = [](const AttentionOperands& f, int64_t num_rows, int64_t num_kv_heads) {
    const auto first = first_backward_part(f);
    ASSERT_TRUE(first);
    EXPECT_EQ(first->part.row, 0);
    EXPECT_EQ(first->part.kv_head, 0);
    EXPECT_EQ(first->part.num_rows, num_rows);
    EXPECT_EQ(first->part.num_kv_heads, num_kv_heads);
  };
  expect(attention_operands(DType::BF16, 16, 1024, 12, 12, 64), 8,
         12);  // ten rows of 24 MiB would fit
  expect(attention_operands(DType::BF16, 7, 1024, 12, 12, 64), 7, 12);
  expect(attention_operands(DType::BF16, 11, 1024, 12, 12, 64), 1, 12);
  expect(attention_operands(DType::BF16, 4, 2048, 32, 8, 128), 1, 8);  // 256 MiB
  expect(attention_operands(DType::BF16, 2, 4096, 32, 8, 128), 1, 2);
  expect(attention_operands(DType::BF16, 1, 4096, 48, 6, 128), 1,
         1);  // each head of keys is read by eight of queries
  expect(attention_operands(DType::BF16, 1, 8192, 32, 32, 128), 1, 2);
  // One head of keys takes more than 256 MiB: 512 MiB and 2 GiB.
  expect(attention_operands(DType::BF16, 2, 8192, 32, 8, 128), 1, 1);
  expect(attention_operands(DType::BF16, 1, 16384, 32, 8, 128), 1, 1);
  expect(attention_operands(DType::BF16, 1, 32768, 32, 32, 128), 1, 1);
}

TEST(AttentionParts, AreNoneWhereLibrariesAreNotAsked) {
  EXPECT_FALSE(first_backward_part(attention_operands(DType::BF16, 1, 16384 + 128, 32, 8, 128)))
      << "more than 2 GiB for a head of keys";
  EXPECT_FALSE(first_backward_part(attention_operands(DType::BF16, 1, 1000, 12, 12, 64)))
      << "no whole tiles";
  EXPECT_FALSE(first_backward_part(attention_operands(DType::BF16, 0, 1024, 12, 12, 64)));
  EXPECT_FALSE(first_backward_part(attention_operands(DType::BF16, 1, 1024, 12, 12, 12)))
      << "rows of 24 bytes";
  auto other = attention_operands(DType::BF16, 1, 1024, 12, 12, 64);
  other.dtype = DType::F32;
  EXPECT_FALSE(first_backward_part(other));
  other = attention_operands(DType::BF16, 1, 1024, 12, 12, 64);
  other.dropout.probability = 0.1f;
  EXPECT_FALSE(first_backward_part(other));
  const int32_t start = 0;
  other = attention_operands(DType::BF16, 1, 1024, 12, 12, 64);
  other.document_starts = &start;
  EXPECT_FALSE(first_backward_part(other));
}

TEST(AttentionParts, TakeWhatCudnnSaysThatItTakes) {
  // cuDNN 9.12, 9.19 and 9.28, for an H100.
  constexpr size_t kGpt2 = 201'326'848, kMistral = 285'212'928;
  EXPECT_EQ(
      first_backward_part(attention_operands(DType::BF16, 16, 1024, 12, 12, 64))->workspace_bytes,
      kGpt2 - 256 + kAttentionWorkspaceBytes);
  EXPECT_EQ(
      first_backward_part(attention_operands(DType::BF16, 1, 4096, 32, 8, 128))->workspace_bytes,
      kMistral - 256 + kAttentionWorkspaceBytes);
}

/// Counts the calls for each row and head of keys.
class CountingLibrary final : public AttentionLibrary {
 public:
  CountingLibrary(std::vector<int>& counts, const BackwardPart& first)
      : counts_(counts), first_(first) {}
  bool can_attend(const AttentionOperands&, size_t) override { return true; }
  bool can_differentiate(const AttentionOperands&, const AttentionPart&, size_t) override {
    return true;
  }
  void forward(cudaStream_t, const AttentionOperands&, std::span<std::byte>) override {}
  void backward(cudaStream_t, const AttentionOperands& f, const AttentionPart& part,
                std::span<std::byte> workspace) override {
    EXPECT_EQ(workspace.size(), first_.workspace_bytes);
    EXPECT_EQ(reinterpret_cast<std::byte*>(f.inner) + first_.inner_bytes, workspace.data());
    for (int64_t row = part.row; row < part.row + part.num_rows; ++row) {
      for (int64_t i = 0; i < part.num_kv_heads; ++i) {
        ++counts_.at(static_cast<size_t>(row * f.num_kv_heads + part.kv_head + i));
      }
    }
  }

 private:
  std::vector<int>& counts_;
  const BackwardPart first_;
};

TEST(AttentionParts, AreAllAskedForOnce) {
  for (const auto& f : {attention_operands(DType::BF16, 16, 1024, 12, 12, 64),
                        attention_operands(DType::BF16, 2, 4096, 32, 8, 128)}) {
    std::vector<int> counts(static_cast<size_t>(f.batch * f.num_kv_heads), 0);
    const auto first = *first_backward_part(f);
    Attention attention(std::make_unique<CountingLibrary>(counts, first));
    EXPECT_EQ(attention.backward_workspace_bytes(f), first.inner_bytes + first.workspace_bytes);
    const auto workspace =
        std::make_unique_for_overwrite<std::byte[]>(attention.backward_workspace_bytes(f));
    attention.backward(nullptr, f, workspace.get(), nullptr);
    EXPECT_EQ(counts, std::vector<int>(counts.size(), 1));
  }
}

/// A library without kernels.
class EmptyLibrary final : public AttentionLibrary {
 public:
  bool can_attend(const AttentionOperands&, size_t) override { return false; }
  bool can_differentiate(const AttentionOperands&, const AttentionPart&, size_t) override {
    return false;
  }
  void forward(cudaStream_t, const AttentionOperands&, std::span<std::byte>) override {}
  void backward(cudaStream_t, const AttentionOperands&, const AttentionPart&,
                std::span<std::byte>) override {}
};

TEST(AttentionNotices, NameEachShapeOfOurOwnKernelsOnce) {
  auto f = attention_operands(DType::BF16, 0, 1000, 12, 12, 64);  // no rows: nothing is computed
  Attention ours(nullptr), theirs(std::make_unique<EmptyLibrary>());
  for (int i = 0; i < 2; ++i) {
    ours.forward(nullptr, f, nullptr, nullptr);
    theirs.forward(nullptr, f, nullptr, nullptr);
    theirs.backward(nullptr, f, nullptr, nullptr);
  }
  EXPECT_TRUE(ours.take_notices().empty());
  EXPECT_EQ(theirs.take_notices(),
            (std::vector<std::string>{
                "the forward of attention (0 x 1000 tokens, 12 heads of 64 channels) uses Ebb's "
                "own kernel: the library has none for it",
                "the backward of attention (0 x 1000 tokens, 12 heads of 64 channels) uses Ebb's "
                "own kernel: the library has none for it"}));
  f.num_tokens = 1001;
  theirs.backward(nullptr, f, nullptr, nullptr);
  EXPECT_EQ(theirs.take_notices().size(), 1u);
  EXPECT_TRUE(theirs.take_notices().empty());
}

TEST(AttentionNotices, AreNoneForTheLibrary) {
  const auto f = attention_operands(DType::BF16, 1, 1024, 12, 12, 64);
  std::vector<int> counts(12, 0);
  const auto first = *first_backward_part(f);
  Attention attention(std::make_unique<CountingLibrary>(counts, first));
  const auto workspace =
      std::make_unique_for_overwrite<std::byte[]>(attention.backward_workspace_bytes(f));
  attention.forward(nullptr, f, workspace.get(), nullptr);
  attention.backward(nullptr, f, workspace.get(), nullptr);
  EXPECT_TRUE(attention.take_notices().empty());
}

/// Device memory of the emulated GPU.
class Memory {
 public:
  explicit Memory(size_t bytes) {
    EXPECT_EQ(cudaMalloc(&data_, bytes), cudaSuccess);
    std::memset(data_, 0xFF, bytes);  // NaN
  }
  ~Memory() { EXPECT_EQ(cudaFree(data_), cudaSuccess); }
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;
  template <class T>
  T* get() const {
    return static_cast<T*>(data_);
  }

 private:
  void* data_ = nullptr;
};

/// cuDNN gets the same offsets of a part.
TEST(AttentionParts, HaveTheBitsOfTheWhole) {
  auto f = attention_operands(DType::BF16, 2, 128, 4, 2, 8);
  const auto columns = static_cast<size_t>(f.qkv_columns());
  const auto tokens = static_cast<size_t>(f.batch * f.num_tokens);
  const size_t qkv_bytes = tokens * columns * 2, out_bytes = tokens * 4 * 8 * 2;
  const size_t sums_bytes = tokens * 4 * sizeof(float);
  const Memory qkv(qkv_bytes), out(out_bytes), dout(out_bytes), sums(sums_bytes);
  const Memory inner(sums_bytes), workspace(64 * kMiB), whole(qkv_bytes), by_parts(qkv_bytes);
  for (size_t i = 0; i < tokens * columns; ++i) {
    qkv.get<BF16>()[i] = BF16(std::sin(static_cast<float>(i)));
  }
  for (size_t i = 0; i < out_bytes / 2; ++i) {
    dout.get<BF16>()[i] = BF16(std::cos(static_cast<float>(i)));
  }
  f.qkv = qkv.get<void>();
  f.out = out.get<void>();
  f.dout = dout.get<void>();
  f.log_sum_exp = sums.get<float>();
  f.inner = inner.get<float>();
  f.dqkv = whole.get<void>();
  const std::span<std::byte> scratch{workspace.get<std::byte>(), 64 * kMiB};
  cudaStream_t stream = nullptr;
  ASSERT_EQ(cudaStreamCreateWithPriority(&stream, cudaStreamNonBlocking, 0), cudaSuccess);
  const auto library = create_attention_library();
  library->forward(stream, f, scratch);
  library->backward(stream, f, {.num_rows = 2, .num_kv_heads = 2}, scratch);
  f.dqkv = by_parts.get<void>();
  for (int64_t row = 0; row < 2; ++row) {
    for (int64_t head = 0; head < 2; ++head) {
      library->backward(stream, f, {.row = row, .num_rows = 1, .kv_head = head, .num_kv_heads = 1},
                        scratch);
    }
  }
  ASSERT_EQ(cudaStreamSynchronize(stream), cudaSuccess);
  ASSERT_EQ(cudaStreamDestroy(stream), cudaSuccess);
  EXPECT_EQ(std::memcmp(whole.get<void>(), by_parts.get<void>(), qkv_bytes), 0);
  for (size_t i = 0; i < tokens * columns; ++i) {
    ASSERT_FALSE(std::isnan(float{whole.get<BF16>()[i]})) << "was every gradient written? " << i;
  }
}

TEST(AttentionParts, TakeMemoryOnlyWhereThereIsALibrary) {
  const auto f = attention_operands(DType::BF16, 4, 2048, 32, 8, 128);
  EXPECT_EQ(Attention(AttentionKernels::Ebb).backward_workspace_bytes(f), kMiB);
  EXPECT_GT(Attention(AttentionKernels::Cudnn).backward_workspace_bytes(f), 288 * kMiB);
  EXPECT_LT(Attention(AttentionKernels::Cudnn).backward_workspace_bytes(f), 289 * kMiB);
  const auto is_long = attention_operands(DType::BF16, 1, 8192, 32, 8, 128);
  EXPECT_EQ(Attention(AttentionKernels::Ebb).backward_workspace_bytes(is_long), kMiB);
  EXPECT_GT(Attention(AttentionKernels::Cudnn).backward_workspace_bytes(is_long), 528 * kMiB);
  EXPECT_LT(Attention(AttentionKernels::Cudnn).backward_workspace_bytes(is_long), 529 * kMiB);
}

}  // namespace
}  // namespace ebb::test::tests_of_attention_parts
