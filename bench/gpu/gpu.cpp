#include "bench/gpu/gpu.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <stdexcept>

namespace ebb::bench {
namespace {

constexpr size_t kPatternBytes = size_t{4} << 20;
constexpr size_t kWorkspaceBytes = size_t{3} << 30;  // attention over 16384 tokens needs 2 GiB
constexpr size_t kSmallWorkspaceBytes = size_t{64} << 20;
constexpr int kSamples = 7;
constexpr int kMostTimes = 10000;

template <class T>
void fill_pattern(std::byte* data, int64_t first) {
  auto* const values = reinterpret_cast<T*>(data);
  for (size_t i = 0; i < kPatternBytes / sizeof(T); ++i) {
    values[i] = T(Gpu::value(first + static_cast<int64_t>(i)));
  }
}

}  // namespace

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values.empty() ? 0 : values[values.size() / 2];
}

void check_close(float found, double expected, double tolerance, const std::string& what) {
  if (std::abs(static_cast<double>(found) - expected) <= tolerance) return;
  throw std::runtime_error(
      fmt::format("WRONG RESULT: {}: {} where {} is right", what, found, expected));
}

Gpu::Gpu(const Options& options, std::optional<AttentionKernels> attention)
    : small_(options.small),
      device_(create_device({.profile = {.kind = DeviceKind::Cuda, .attention = attention}})),
      pattern_(device_->allocate(MemoryKind::Pinned, kPatternBytes, "pattern")),
      begin_(device_->create_event()),
      end_(device_->create_event()),
      load_(device_->create_stream(StreamKind::Load)),
      store_(device_->create_stream(StreamKind::Store)),
      compute_(device_->create_stream(StreamKind::Compute)) {
  device_->reserve_workspace(small_ ? kSmallWorkspaceBytes : kWorkspaceBytes);
}

float Gpu::value(int64_t i) {
  const auto bits = static_cast<uint32_t>(i) * 2654435761u;
  return static_cast<float>(static_cast<int32_t>((bits >> 16) % 255) - 127) / 128.0f;
}

Tensor Gpu::make_empty(DType dtype, Shape shape) {
  const size_t bytes = static_cast<size_t>(shape.num_elements()) * size_of(dtype);
  buffers_.push_back(device_->allocate(MemoryKind::Device, bytes, "benchmark"));
  return {buffers_.back().data(), dtype, shape};
}

Tensor Gpu::make(DType dtype, Shape shape) {
  const Tensor tensor = make_empty(dtype, shape);
  for (size_t at = 0; at < tensor.bytes(); at += kPatternBytes) {
    const auto first = static_cast<int64_t>(at / size_of(dtype));
    dtype == DType::F32 ? fill_pattern<float>(pattern_.data(), first)
                        : fill_pattern<BF16>(pattern_.data(), first);
    const size_t bytes = std::min(kPatternBytes, tensor.bytes() - at);
    load_->copy(tensor.data + at, pattern_.data(), bytes, CopyKind::Load);
    load_->synchronize();
  }
  return tensor;
}

std::vector<float> Gpu::read(const Tensor& tensor, int64_t first, int64_t n) {
  const size_t bytes = static_cast<size_t>(n) * size_of(tensor.dtype);
  EBB_CHECK(bytes <= kPatternBytes, "more is read at once than there is room for");
  compute_->synchronize();
  store_->copy(pattern_.data(), tensor.data + static_cast<size_t>(first) * size_of(tensor.dtype),
               bytes, CopyKind::Store);
  store_->synchronize();
  std::vector<float> values(static_cast<size_t>(n));
  for (size_t i = 0; i < values.size(); ++i) {
    values[i] = tensor.dtype == DType::F32
                    ? reinterpret_cast<const float*>(pattern_.data())[i]
                    : static_cast<float>(reinterpret_cast<const BF16*>(pattern_.data())[i]);
  }
  return values;
}

double Gpu::sample(const std::function<void()>& submit, int times) {
  compute_->record(*begin_);
  for (int i = 0; i < times; ++i) submit();
  compute_->record(*end_);
  compute_->synchronize();
  return (end_->time_s() - begin_->time_s()) / times;
}

double Gpu::seconds_of(const std::function<void()>& submit, double sample_s) {
  sample(submit, 1);  // the first call makes plans and loads code
  const double once_s = std::max(sample(submit, 1), 1e-7);
  const int times =
      small_ ? 1 : static_cast<int>(std::clamp(sample_s / once_s, 1.0, 1.0 * kMostTimes));
  std::vector<double> seconds;
  for (int i = 0; i < (small_ ? 1 : kSamples); ++i) seconds.push_back(sample(submit, times));
  return median(seconds);
}

double product_peak(Gpu& gpu, bool small) {
  const int64_t n = small ? 64 : 8192;
  const Tensor x = gpu.make(DType::BF16, {n, n}), w = gpu.make(DType::BF16, {n, n});
  const Tensor y = gpu.make_empty(DType::BF16, {n, n});
  const double seconds = gpu.seconds_of(
      [&] {
        gpu.kernels().submit(gpu.compute(), LinearForward{y, x, w, {}});
      },
      0.2);
  gpu.clear();
  return 2.0 * static_cast<double>(n * n) * static_cast<double>(n) / seconds;
}

}  // namespace ebb::bench
