// The kernels that bench_kernels measures, with their operands and a check of their results.
//
// Each class holds the operands of some kernels of one shape. Its cases are in the order of kNames.
// A check runs the kernel and compares a sample of what it wrote with sums in fp64.
#pragma once

#include <functional>
#include <vector>

#include "bench/kernel_setup.h"

namespace ebb::bench {

struct KernelCase {
  /// The tensors that the kernel must read and write at least. Both lists are empty if arithmetic
  /// is the limit.
  std::vector<const Storage*> reads = {};
  const Storage* write = nullptr;
  std::function<void()> run = {};
  std::function<void()> check = {};  ///< throws NumericError
};

/// Random indices below a limit.
struct Indices : Storage {
  Indices(int64_t n, int64_t limit);
};

/// Causal attention with heads of 64 channels.
class Attention {
 public:
  static constexpr const char* kNames[] = {"attention", "attention backward"};
  Attention(HostKernels& kernels, DType dtype, int64_t batch, int64_t tokens, int64_t heads);
  const std::vector<KernelCase>& cases() const { return cases_; }

 private:
  struct Row;
  Row row(int64_t b, int64_t head, int64_t query) const;
  void check_forward() const;
  void check_backward() const;

  const int64_t batch_, tokens_, heads_;
  Storage qkv_, dout_, out_, dqkv_, log_sum_exp_;
  std::vector<KernelCase> cases_;
};

class LayerNorm {
 public:
  static constexpr const char* kNames[] = {"layer norm", "layer norm backward",
                                           "layer norm backward, adding"};
  LayerNorm(HostKernels& kernels, DType dtype, int64_t rows, int64_t columns);
  const std::vector<KernelCase>& cases() const { return cases_; }

 private:
  void check_forward() const;
  void check_backward(double times) const;

  const int64_t rows_, columns_;
  Storage x_, dy_, w_, b_, y_, mean_, rstd_, dx_, dw_, db_;
  std::vector<KernelCase> cases_;
};

class Elementwise {
 public:
  static constexpr const char* kNames[] = {"GELU", "GELU backward", "add"};
  Elementwise(HostKernels& kernels, DType dtype, int64_t rows, int64_t columns);
  const std::vector<KernelCase>& cases() const { return cases_; }

 private:
  Storage x_, dy_, y_;
  std::vector<KernelCase> cases_;
};

class Accumulate {
 public:
  static constexpr const char* kNames[] = {"accumulate"};
  Accumulate(HostKernels& kernels, int64_t n);
  const std::vector<KernelCase>& cases() const { return cases_; }

 private:
  Storage x_, y_;
  std::vector<KernelCase> cases_;
};

class CrossEntropy {
 public:
  static constexpr const char* kNames[] = {"cross-entropy"};
  CrossEntropy(HostKernels& kernels, DType dtype, int64_t rows, int64_t classes);
  const std::vector<KernelCase>& cases() const { return cases_; }

 private:
  const int64_t classes_;
  Storage logits_, losses_;
  Indices targets_;
  std::vector<KernelCase> cases_;
};

/// GPT-2's token embedding.
class Embedding {
 public:
  static constexpr const char* kNames[] = {"embedding", "embedding backward"};
  Embedding(HostKernels& kernels, DType dtype, int64_t rows);
  const std::vector<KernelCase>& cases() const { return cases_; }

 private:
  Storage table_, positions_, y_, dtable_;
  Indices tokens_, places_;
  std::vector<KernelCase> cases_;
};

}  // namespace ebb::bench
