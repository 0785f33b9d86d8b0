// Shared code of the GPU benchmarks: the device, data, and times on the device's clock.
//
// The benchmarks use only device/ and modules above it, so they also run on the emulated GPU.
// There, with `small`, they are a test of the benchmarks, and their times have no meaning.
#pragma once

#include <fmt/format.h>

#include <cstdio>
#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include "device/device.h"
#include "device/kernels.h"

namespace ebb::bench {

struct Options {
  bool small = false;       ///< sizes for the emulated GPU
  std::string preset = "";  ///< step: only this preset; empty: all
};

/// A GPU with workspace and a compute stream.
class Gpu {
 public:
  /// Throws ConfigError if there is no GPU.
  explicit Gpu(const Options& options, std::optional<AttentionKernels> attention = {});

  Device& device() { return *device_; }
  Stream& compute() { return *compute_; }
  Kernels& kernels() { return device_->kernels(); }

  /// Allocates a tensor of bf16 or fp32 in device memory. Element i is value(i), between -1 and 1.
  Tensor make(DType dtype, Shape shape);
  static float value(int64_t i);
  /// Allocates a tensor filled with zeros.
  Tensor make_empty(DType dtype, Shape shape);
  /// Frees all tensors of make() and make_empty().
  void clear() { buffers_.clear(); }
  /// Copies n elements of a tensor of bf16 or fp32 to the host, from element `first` on, at most 4
  /// MiB. Waits for the compute stream.
  std::vector<float> read(const Tensor& tensor, int64_t first, int64_t n);

  /// The time of one call of `submit` on the device, in seconds: the median of several samples.
  /// Each sample has enough calls to take `sample_s` seconds, at most 10,000. With Options::small
  /// one call is timed.
  double seconds_of(const std::function<void()>& submit, double sample_s = 0.05);

 private:
  double sample(const std::function<void()>& submit, int times);

  const bool small_;
  std::unique_ptr<Device> device_;
  Buffer pattern_;
  std::vector<Buffer> buffers_;
  std::unique_ptr<Event> begin_, end_;
  std::unique_ptr<Stream> load_, store_, compute_;
};

double median(std::vector<double> values);

/// FLOP/s of a large product of bf16. Shares are relative to this rate. Frees all tensors of `gpu`.
double product_peak(Gpu& gpu, bool small);

/// Throws std::runtime_error if |found - expected| is larger than `tolerance`: a wrong result makes
/// a benchmark useless.
void check_close(float found, double expected, double tolerance, const std::string& what);

/// Calls `measure` for each case. If it throws, prints the error and goes on with the next case.
/// Throws std::runtime_error at the end if a case has failed.
template <class Cases, class Measure>
void measure_each(const Cases& cases, const Measure& measure) {
  int num_failed = 0;
  for (const auto& c : cases) {
    try {
      measure(c);
    } catch (const std::exception& error) {
      fmt::print("{}\n", error.what());
      std::fflush(stdout);
      ++num_failed;
    }
  }
  if (num_failed > 0) {
    throw std::runtime_error(fmt::format("{} cases have failed, see above", num_failed));
  }
}

// The benchmarks, one in each file. Each prints a table.
void measure_copies(const Options& options);
void measure_mapping(const Options& options);
void measure_products(const Options& options);
void measure_attention(const Options& options);
void measure_memory(const Options& options);
void measure_steps(const Options& options);

}  // namespace ebb::bench
