// Shared code of the benchmarks of the host's kernels: a stream that runs kernels at once, tensors
// in huge pages, and the peak of the processor as a roof.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <random>
#include <utility>

#include "bench/huge_pages.h"
#include "bench/micro_benchmark.h"
#include "bench/peak.h"
#include "device/backends.h"
#include "system/thread_team.h"

namespace ebb::bench {

/// Runs every operation in the submitting thread, and allocates the workspace that a kernel needs.
class InlineStream final : public Stream {
 public:
  explicit InlineStream(Workspace& workspace) : workspace_(workspace) {}
  void record(Event&) override {}
  void wait(const Event&) override {}
  void copy(void*, const void*, size_t, CopyKind) override {}
  void submit(const Cost& cost, HostFunction function) override {
    flops_ = cost.flops;
    if (workspace_.bytes < cost.workspace_bytes) {
      memory_.emplace(cost.workspace_bytes);
      workspace_ = {memory_->data(), cost.workspace_bytes};
    }
    function();
  }
  void synchronize() override {}
  StreamStats stats() const override { return {}; }
  /// Floating-point operations of the last call.
  double flops() const { return flops_; }

 private:
  Workspace& workspace_;
  std::optional<HugePages> memory_;
  double flops_ = 0;
};

/// The kernels of the host backend, with threads of their own.
class HostKernels {
 public:
  HostKernels(int num_threads, Arithmetic arithmetic)
      : team(num_threads),
        stream(workspace_),
        kernels_(create_host_kernels(team, workspace_, arithmetic)) {}
  Kernels* operator->() const { return kernels_.get(); }

  /// As many floating-point operations as the last call had, at the peak of this arithmetic.
  Work peak(Arithmetic arithmetic) {
    const double flops_of_a_round = run_at_peak(team, arithmetic, 1);
    const auto rounds = static_cast<int64_t>(std::max(1.0, stream.flops() / flops_of_a_round));
    return {flops_of_a_round * static_cast<double>(rounds),
            [=, this] { run_at_peak(team, arithmetic, rounds); }};
  }

 private:
  Workspace workspace_;

 public:
  ThreadTeam team;
  InlineStream stream;

 private:
  std::unique_ptr<Kernels> kernels_;
};

/// A tensor in huge pages of its own. Its memory ends with a cache line.
class Storage {
 public:
  Storage(DType dtype, Shape shape)
      : memory_((static_cast<size_t>(shape.num_elements()) * size_of(dtype) + 63) / 64 * 64),
        tensor_{memory_.data(), dtype, shape} {
    std::ranges::fill(memory_.span(), std::byte{0});
  }
  /// Values that are evenly spread in [-range, range].
  Storage(DType dtype, Shape shape, double range, uint32_t seed = 1) : Storage(dtype, shape) {
    std::minstd_rand random(seed);
    for (int64_t i = 0; i < shape.num_elements(); ++i) {
      const auto spread = static_cast<double>(random()) / std::minstd_rand::max() * 2 - 1;
      const auto value = static_cast<float>(spread * range);
      if (dtype == DType::F32) {
        tensor_.as<float>()[i] = value;
      } else {
        tensor_.as<BF16>()[i] = BF16(value);
      }
    }
  }

  operator Tensor() const { return tensor_; }
  const Tensor& tensor() const { return tensor_; }
  /// Element `i` of all.
  double operator[](int64_t i) const {
    return tensor_.dtype == DType::F32 ? tensor_.as<float>()[i]
                                       : static_cast<float>(tensor_.as<BF16>()[i]);
  }
  uint32_t* words() const { return reinterpret_cast<uint32_t*>(tensor_.data); }
  int64_t num_words() const { return static_cast<int64_t>(memory_.span().size() / 4); }

 private:
  HugePages memory_;
  Tensor tensor_;
};

}  // namespace ebb::bench
