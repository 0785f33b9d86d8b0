#include "cuda/cuda_kernels.h"

#include <utility>

#include "cuda/attention.h"
#include "cuda/kernel_stream.h"
#include "cuda/kernels/gpu_launch.h"
#include "cuda/linear.h"
#include "device/backends.h"

namespace ebb {
namespace {

uint64_t most_kernels(const auto&) { return kUsualKernels; }
/// The first one fetches the coefficients.
uint64_t most_kernels(const AdamWUpdate& kernel) {
  return 1 + (kernel.ranges.size() + cuda::kRangesAtOnce - 1) / cuda::kRangesAtOnce;
}
uint64_t most_kernels(const AttentionBackward& kernel) {
  return most_backward_kernels(kernel.operands());
}

class CudaKernels final : public Kernels {
 public:
  CudaKernels(const Workspace* workspace, DataError* data_error,
              std::unique_ptr<MatrixProducts> products, std::unique_ptr<AttentionLibrary> attention)
      : products_(std::move(products)),
        attention_(std::move(attention)),
        gpu_{.workspace = workspace,
             .data_error = data_error,
             .products = products_.get(),
             .attention = &attention_} {}
  /// Only counts kernels.
  explicit CudaKernels(AttentionKernels counted)
      : attention_(counted), gpu_{.attention = &attention_} {}

  // With padding, a product of all columns but the last few runs at full speed (columns_at_once()
  // in cuda/linear.cpp). Few large products are faster than many small ones. 2^27 bf16 logits take
  // 256 MiB: 2,624 rows of GPT-2's 50,257 classes.
  LogitsShape logits_shape() const override {
    return {.most_elements = int64_t{1} << 27, .column_multiple = kMostPadding};
  }
  void submit(Stream& stream, const AnyKernel& kernel) override {
    std::visit([&](const auto& k) { submit_one(stream, k); }, kernel);
  }
  std::vector<std::string> take_notices() override { return attention_.take_notices(); }

 private:
  template <class Kernel>
  void submit_one(Stream& stream, const Kernel& kernel) {
    if constexpr (requires { kernel.split(); }) {
      if (!goes_with_products(kernel.activation, kernel.before)) {
        const auto [first, second] = kernel.split();
        submit_one(stream, first);
        return submit_one(stream, second);
      }
    }
    const Cost cost = cost_on(gpu_, kernel);
    if (auto* const gpu_stream = dynamic_cast<KernelStream*>(&stream)) {
      const auto run = [this, &kernel](cudaStream_t s) {
        GpuLaunch gpu = gpu_;
        gpu.stream = s;
        kernel.run(gpu);
      };
      return gpu_stream->launch(cost, run, most_kernels(kernel));
    }
    stream.submit(cost, [] {
      EBB_CHECK(false, "kernels of the CUDA backend were submitted to a stream of the host");
    });
  }

  const std::unique_ptr<MatrixProducts> products_;
  Attention attention_;
  const GpuLaunch gpu_;
};

}  // namespace

std::unique_ptr<Kernels> create_cuda_kernels(const Workspace& workspace, DataError* data_error,
                                             std::unique_ptr<AttentionLibrary> attention) {
  return std::make_unique<CudaKernels>(&workspace, data_error, create_matrix_products(),
                                       std::move(attention));
}

std::unique_ptr<Kernels> create_counting_cuda_kernels(AttentionKernels attention) {
  return std::make_unique<CudaKernels>(attention);
}

}  // namespace ebb
