// TFLOP/s of causal attention, forward and backward, in bf16. Only the half of the scores below the
// causal mask is counted: 2 B NH T^2 D in the forward and 2.5 times that in the backward. The
// program measures a library if one is found, and our own kernels. If the library has no kernel for
// a case, our own kernel is measured instead, and a line below the case says so. The column `error`
// is the largest error of one query's output, compared with fp64.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <span>
#include <stdexcept>
#include <vector>

#include "bench/gpu/gpu.h"

namespace ebb::bench {
namespace {

struct Case {
  const char* name;
  int64_t batch, length, heads, kv_heads, head_size;

  int64_t columns() const { return (heads + 2 * kv_heads) * head_size; }
  double flops() const {
    return 2.0 * static_cast<double>(batch * heads) * static_cast<double>(length) *
           static_cast<double>(length) * static_cast<double>(head_size);
  }
};

constexpr Case kCases[] = {
    {"GPT-2", 16, 1024, 12, 12, 64},      {"GPT-3 2.7B", 8, 2048, 32, 32, 80},
    {"GPT-3 6.7B", 8, 1024, 32, 32, 128}, {"GPT-3 6.7B", 4, 2048, 32, 32, 128},
    {"Llama 8B", 4, 2048, 32, 8, 128},    {"Llama 8B", 2, 4096, 32, 8, 128},
    {"Llama 8B", 1, 8192, 32, 8, 128},    {"Llama 8B", 1, 16384, 32, 8, 128},
    {"Llama 8B", 1, 32768, 32, 8, 128},
};
constexpr Case kSmallCases[] = {{"small", 1, 70, 4, 2, 16}, {"a tile", 1, 128, 2, 2, 16}};

/// Softmax weights of one query, in fp64.
std::vector<double> weights_of(const Case& c, int64_t row, int64_t query, int64_t head) {
  const int64_t key_head = c.heads + head / (c.heads / c.kv_heads), first = row * c.length;
  std::vector<double> weights;
  double sum = 0;
  for (int64_t key = 0; key <= query; ++key) {
    double score = 0;
    for (int64_t d = 0; d < c.head_size; ++d) {
      score +=
          static_cast<double>(Gpu::value((first + query) * c.columns() + head * c.head_size + d)) *
          Gpu::value((first + key) * c.columns() + key_head * c.head_size + d);
    }
    weights.push_back(std::exp(score / std::sqrt(static_cast<double>(c.head_size))));
    sum += weights.back();
  }
  for (double& weight : weights) weight /= sum;
  return weights;
}

/// Checks the result of one query. Returns its largest error.
double verify_out(Gpu& gpu, const Case& c, const Tensor& out) {
  const int64_t query = std::min<int64_t>(c.length - 1, 777), head = c.heads - 1;
  const std::vector<double> weights = weights_of(c, 0, query, head);
  const int64_t value_head = c.heads + c.kv_heads + head / (c.heads / c.kv_heads);
  const std::vector<float> found =
      gpu.read(out, (query * c.heads + head) * c.head_size, c.head_size);
  double largest = 0;
  for (int64_t d = 0; d < c.head_size; ++d) {
    double expected = 0;
    for (int64_t key = 0; key <= query; ++key) {
      expected += weights[static_cast<size_t>(key)] *
                  Gpu::value(key * c.columns() + value_head * c.head_size + d);
    }
    const float one = found[static_cast<size_t>(d)];
    check_close(one, expected, std::abs(expected) / 128 + 1e-3,
                std::string("attention of ") + c.name);
    largest = std::max(largest, std::abs(one - expected));
  }
  return largest;
}

/// Checks the gradient of the last token's values, which only the last query sees.
void verify_gradient(Gpu& gpu, const Case& c, const Tensor& dqkv, int64_t row, int64_t kv_head) {
  const int64_t token = row * c.length + c.length - 1, group = c.heads / c.kv_heads;
  for (const int64_t d : {int64_t{0}, c.head_size - 1}) {
    double expected = 0, size = 0;
    for (int64_t head = kv_head * group; head < (kv_head + 1) * group; ++head) {
      const double term = weights_of(c, row, c.length - 1, head).back() *
                          Gpu::value((token * c.heads + head) * c.head_size + d);
      expected += term;
      size += std::abs(term);
    }
    const int64_t at = token * c.columns() + (c.heads + c.kv_heads + kv_head) * c.head_size + d;
    // A library rounds each head's weight and gradient before it adds them.
    const double tolerance = std::max(std::abs(expected) / 64, size / 128) + 1e-7;
    check_close(gpu.read(dqkv, at, 1)[0], expected, tolerance,
                std::string("a gradient of the attention of ") + c.name);
  }
}

/// Measures one case, and says if a library was requested and our own kernels ran. Returns true if
/// the requested kernels ran.
bool measure(Gpu& gpu, const Case& c, double peak) {
  const Tensor qkv = gpu.make(DType::BF16, {c.batch, c.length, c.columns()});
  const Tensor dout = gpu.make(DType::BF16, {c.batch, c.length, c.heads * c.head_size});
  const Tensor out = gpu.make_empty(DType::BF16, dout.shape);
  const Tensor dqkv = gpu.make_empty(DType::BF16, qkv.shape);
  const Tensor log_sum_exp = gpu.make_empty(DType::F32, {c.batch, c.heads, c.length});
  const AttentionShape shape{.num_heads = c.heads, .num_kv_heads = c.kv_heads};
  Kernels& kernels = gpu.kernels();
  const double forward_s = gpu.seconds_of([&] {
    kernels.submit(gpu.compute(), AttentionForward{out, log_sum_exp, qkv, shape});
  });
  const double error = verify_out(gpu, c, out);
  const double backward_s = gpu.seconds_of([&] {
    kernels.submit(gpu.compute(), AttentionBackward{dqkv, dout, qkv, out, log_sum_exp, shape});
  });
  verify_gradient(gpu, c, dqkv, 0, 0);
  verify_gradient(gpu, c, dqkv, c.batch - 1, c.kv_heads - 1);
  fmt::print(
      "{:<12} {:>5} {:>6} {:>5} {:>5} {:>5} {:>10.3f} {:>10.3f} {:>8.1f} {:>8.1f} {:>7.1f} % "
      "{:>8.1e}\n",
      c.name, c.batch, c.length, c.heads, c.kv_heads, c.head_size, 1e3 * forward_s,
      1e3 * backward_s, c.flops() / forward_s / 1e12, 2.5 * c.flops() / backward_s / 1e12,
      100 * 3.5 * c.flops() / (forward_s + backward_s) / peak, error);
  const std::vector<std::string> notices = kernels.take_notices();
  for (const std::string& notice : notices) fmt::print("  {}\n", notice);
  std::fflush(stdout);
  gpu.clear();
  return notices.empty();
}

/// Measures all cases. Throws std::runtime_error if a library was requested and has computed none
/// of them: a missing NVRTC or an old driver is otherwise seen only in the times.
void measure(const Options& options, AttentionKernels attention) {
  Gpu gpu(options, attention);
  const double peak = product_peak(gpu, options.small);
  fmt::print("{:<12} {:>5} {:>6} {:>5} {:>5} {:>5} {:>10} {:>10} {:>8} {:>8} {:>9} {:>8}\n", "",
             "batch", "tokens", "heads", "kv", "size", "forward ms", "backward", "TFLOP/s",
             "backward", "of peak", "error");
  const std::span<const Case> cases = options.small ? std::span<const Case>(kSmallCases) : kCases;
  int num_as_requested = 0;
  measure_each(cases, [&](const Case& c) { num_as_requested += measure(gpu, c, peak) ? 1 : 0; });
  if (num_as_requested > 0) return;
  throw std::runtime_error(
      "the library has no kernel for any of these cases, so that only Ebb's own were measured; is "
      "the folder of libnvrtc.so in LD_LIBRARY_PATH?");
}

}  // namespace

void measure_attention(const Options& options) {
  const std::string library = probe_cuda().attention_library;
  fmt::print("by {}\n", library.empty() ? "no library: none is found" : library);
  if (!library.empty()) measure(options, AttentionKernels::Cudnn);
  fmt::print("\nour own\n");
  measure(options, AttentionKernels::Ebb);
}

}  // namespace ebb::bench
