#include "bench/choose_cases.h"

namespace ebb::bench {
namespace {

constexpr size_t kGiB = size_t{1} << 30;

// A GPU: the rate of matrix products (attention has half of it), the device memory bandwidth, the
// link in each direction, and the host memory bandwidth of the optimizer.
constexpr Machine gpu(double tflops, double device_gb, double link_gb, double update_gb) {
  return {.flops_per_s = tflops * 1e12,
          .attention_flops_per_s = tflops * 0.5e12,
          .device_bytes_per_s = device_gb * 1e9,
          .load_bytes_per_s = link_gb * 1e9,
          .store_bytes_per_s = link_gb * 1e9,
          .update_bytes_per_s = update_gb * 1e9};
}
constexpr Machine kH100Busy = gpu(600, 3000, 25, 100);
constexpr Machine kGraceHopper = gpu(720, 4000, 300, 400);
constexpr Machine kRtx4090 = gpu(150, 900, 24, 60);
constexpr Machine kRtx3060 = gpu(25, 330, 12, 30);

constexpr LargeCase kLarge[] = {
    {"gpt3-175b", "H200", kAssumedH200, 128 * kGiB, 8, 4},
    {"gpt3-175b", "H200", kAssumedH200, 80 * kGiB, 8, 1},
    {"gpt3-175b", "half an H100's host", kH100Busy, 72 * kGiB, 4, 4},
    {"gpt3-13b", "H200", kAssumedH200, 128 * kGiB, 4, 2},
    {"gpt3-13b", "H200", kAssumedH200, 128 * kGiB, 4, 2, false},
    {"gpt3-13b", "Grace Hopper", kGraceHopper, 90 * kGiB, 4, 4},
    {"gpt3-13b", "RTX 4090", kRtx4090, 22 * kGiB, 2, 4},
    {"gpt3-6.7b", "RTX 4090", kRtx4090, 22 * kGiB, 4, 1},
    {"gpt3-6.7b", "RTX 4090", kRtx4090, 22 * kGiB, 2, 8, false},
    {"gpt3-6.7b", "RTX 3060", kRtx3060, 11 * kGiB, 1, 8},
    {"gpt3-2.7b", "RTX 3060", kRtx3060, 11 * kGiB, 1, 2},
    {"gpt3-2.7b", "RTX 4090", kRtx4090, 22 * kGiB, 4, 2},
    {"gpt2-xl", "RTX 3060", kRtx3060, 11 * kGiB, 4, 4},
    {"gpt2-xl", "RTX 4090", kRtx4090, 22 * kGiB, 8, 1, false},
    // A GPT of 8.3 B parameters.
    {"gpt3-6.7b", "H200", kAssumedH200, 137 * kGiB, 4, 4, true, 40},
    {"gpt3-6.7b", "H200", kAssumedH200, 64 * kGiB, 4, 4, true, 40},
    {"gpt3-6.7b", "H200", kAssumedH200, 16 * kGiB, 4, 4, true, 40},
};

constexpr SmallCase kSmall[] = {
    {"gpt-6x384-bytes", 4, 128, 1, 0.3, 0, true},
    {"gpt-6x384-bytes", 2, 128, 4, 0.3, 0, true},
    {"gpt-6x384-bytes", 4, 128, 2, 0.1, 0, false},
    {"gpt-6x384-bytes", 4, 128, 1, 0.3, 0.4, true},
    {"gpt-6x384-bytes", 4, 128, 1, 0.3, 0.4, false},
    {"gpt-6x384-bytes", 2, 128, 4, 0.3, 0.4, true},
    {"gpt-6x384-bytes", 2, 128, 4, 0.6, 1, true},
    {"gpt-6x384-bytes", 2, 256, 2, 0, 0.5, true},
    {"gpt-6x384-bytes", 4, 128, 2, 1, 0.5, false},
    {"gpt2-bytes", 2, 128, 1, 0.3, 0.3, true},
    {"gpt2-bytes", 1, 128, 4, 0.3, 0.5, true},
    {"gpt2-bytes", 1, 256, 2, 0.2, 0, false},
    {"gpt2-bytes", 2, 128, 1, 0.3, 0.5, true, 0.4e12},
    {"gpt2-bytes", 1, 128, 4, 0.3, 0.5, false, 0.4e12},
};

}  // namespace

std::span<const LargeCase> large_cases() { return kLarge; }
std::span<const SmallCase> small_cases() { return kSmall; }

}  // namespace ebb::bench
