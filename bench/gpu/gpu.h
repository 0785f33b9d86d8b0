// What the GPU benchmarks share: the device, data, and times on the device's own clock.
//
// They use nothing but device/ and what is built on it, so they run on an emulated GPU as well:
// there `small` makes them a test of the benchmarks, and their times mean nothing.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "device/device.h"
#include "device/kernels.h"

namespace ebb::bench {

struct Options {
  bool small = false;       ///< sizes for an emulation
  std::string preset = "";  ///< step: this one alone
};

/// A GPU with room for workspace, and a compute stream on it.
class Gpu {
 public:
  /// Throws ConfigError where there is none.
  explicit Gpu(const Options& options, std::optional<AttentionKernels> attention = {});

  Device& device() { return *device_; }
  Stream& compute() { return *compute_; }
  Kernels& kernels() { return device_->kernels(); }

  /// A tensor in device memory of its own, filled with values between -1 and 1; element i is
  /// value(i). Of bf16 or fp32.
  Tensor make(DType dtype, Shape shape);
  static float value(int64_t i);
  /// Zeros.
  Tensor make_empty(DType dtype, Shape shape);
  /// Frees what make() took.
  void clear() { buffers_.clear(); }
  /// n elements of a tensor from element `first` on, of bf16 or fp32.
  std::vector<float> read(const Tensor& tensor, int64_t first, int64_t n);

  /// Seconds of one call of `submit` on the device: the median of some samples, each of so many
  /// calls that it takes `sample_s`.
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

/// FLOP/s of a large product of bf16: what shares are counted of.
double product_peak(Gpu& gpu, bool small);

/// Throws std::runtime_error: a benchmark whose result is wrong has measured nothing.
void check_close(float found, double expected, double tolerance, const std::string& what);

// The questions, one a file. Each prints a table.
void measure_copies(const Options& options);
void measure_mapping(const Options& options);
void measure_products(const Options& options);
void measure_attention(const Options& options);
void measure_memory(const Options& options);
void measure_steps(const Options& options);

}  // namespace ebb::bench
