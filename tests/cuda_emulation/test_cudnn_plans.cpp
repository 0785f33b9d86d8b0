// The real cuDNN makes plans of attention for GPUs that this machine does not have: it reads their
// properties as JSON (since 9.8) and loads its compiled code into a stand-in for the driver.
// Skipped without cuDNN. Results are not checked here, but on a GPU (test_attention_library.cpp).
#include <gtest/gtest.h>

#include <string>

#include "cuda/attention.h"
#include "cuda/kernels/cudnn_plan.h"
#include "device/errors.h"
#include "tests/cuda_emulation/attention_operands.h"
#include "tests/error_of.h"

namespace ebb::test {
namespace {

struct Gpu {
  const char* name;
  int architecture, num_multiprocessors, shared_bytes;
};
constexpr Gpu kGpus[] = {{"A100", 800, 108, 166912},    {"RTX3090", 860, 84, 101376},
                         {"RTX4090", 890, 128, 101376}, {"H100", 900, 132, 232448},
                         {"B200", 1000, 148, 232448},   {"RTX5090", 1200, 170, 101376}};

std::string properties_of(const Gpu& gpu) {
  const auto number = [](const char* name, long value) {
    return ",\"" + std::string(name) + "\":" + std::to_string(value);
  };
  return R"({"maxGridSize":[2147483647,65535,65535],"maxBlockSize":[1024,1024,64],"deviceName":")" +
         std::string(gpu.name) + "\"" + number("deviceVer", gpu.architecture) +
         number("multiProcessorCount", gpu.num_multiprocessors) +
         number("maxSharedMemoryPerBlockOptin", gpu.shared_bytes) +
         number("maxSharedMemoryPerBlock", 49152) + number("reservedSharedMemoryPerBlock", 1024) +
         number("regsPerBlock", 65536) + number("maxRegistersPerSM", 65536) +
         number("maxCtasPerSM", 32) + number("maxThreadsPerBlock", 1024) +
         number("maxThreadsPerSM", 2048) + number("warpSize", 32) +
         number("totalGlobalMem", 24L << 30) + number("l2CacheSize", 50L << 20) +
         number("smClockRateKHz", 1980000) + number("memClockRateKHz", 2619000) +
         number("supportCoopLaunch", 1) + number("smCountOrigin", 0) +
         number("oversizedSharedMemoryPerBlock", gpu.shared_bytes) +
         number("memoryBusWidth", 5120) + number("isTccDriver", 0) + number("pciDeviceId", 0) +
         number("cudaDeviceId", 0) + number("driverVer", 13000) + number("runtimeVer", 13000) + "}";
}

class CudnnPlans : public testing::TestWithParam<Gpu> {
 protected:
  void SetUp() override {
    if (!library_.is_there()) GTEST_SKIP() << "there is no cuDNN here that will do";
    properties_ = create_descriptor(library_, CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR);
    const std::string json = properties_of(GetParam());
    check_cudnn(
        library_,
        library_.SetAttribute(properties_.get(), CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION,
                              CUDNN_TYPE_CHAR, static_cast<int64_t>(json.size()), json.data()),
        "describing a GPU");
    check_cudnn(library_, library_.Finalize(properties_.get()), "describing a GPU");
  }

  std::optional<CudnnPlan> plan(const AttentionOperands& f) const {
    return plan_attention(library_, {.properties = properties_.get()}, forward_of(f),
                          int64_t{kAttentionWorkspaceBytes});
  }
  /// With exactly the workspace of such a part.
  std::optional<CudnnPlan> plan_backward(const AttentionOperands& f) const {
    const auto first = first_backward_part(f);
    return plan_attention(library_, {.properties = properties_.get()}, backward_of(f, first->part),
                          static_cast<int64_t>(first->workspace_bytes));
  }

  const CudnnLibrary library_;
  CudnnDescriptor properties_{nullptr, CudnnDestroy{&library_}};
};
INSTANTIATE_TEST_SUITE_P(Gpus, CudnnPlans, testing::ValuesIn(kGpus),
                         [](const auto& info) { return std::string(info.param.name); });

TEST_P(CudnnPlans, AreThereForWhatModelsAskFor) {
  EXPECT_TRUE(plan(attention_operands(DType::BF16, 8, 2048, 32, 32, 80))) << "GPT-3 2.7B";
  EXPECT_TRUE(plan(attention_operands(DType::BF16, 1, 8192, 32, 8, 128, true, 4096)))
      << "Mistral, and Llama but for the window";
  EXPECT_TRUE(plan(attention_operands(DType::F16, 32, 512, 12, 12, 64, false))) << "BERT";
  EXPECT_TRUE(plan(attention_operands(DType::BF16, 2, 131, 6, 2, 24, true, 100)))
      << "an odd length";
}

TEST_P(CudnnPlans, AreThereForTheirBackward) {
  EXPECT_TRUE(plan_backward(attention_operands(DType::BF16, 8, 2048, 32, 32, 80)))
      << "GPT-3 2.7B, a row";
  EXPECT_TRUE(plan_backward(attention_operands(DType::BF16, 16, 1024, 12, 12, 64)))
      << "GPT-2, eight rows";
  EXPECT_TRUE(plan_backward(attention_operands(DType::BF16, 1, 4096, 32, 8, 128, true, 1024)))
      << "Mistral, and Llama but for the window: two heads of keys";
  EXPECT_TRUE(plan_backward(attention_operands(DType::F16, 32, 512, 12, 12, 64, false))) << "BERT";
  EXPECT_TRUE(plan_backward(attention_operands(DType::BF16, 1, 8192, 32, 8, 128)))
      << "Llama, one head of keys";
  EXPECT_TRUE(plan_backward(attention_operands(DType::BF16, 1, 16384, 32, 8, 128)))
      << "Llama, one head of keys of 2 GiB";
  EXPECT_TRUE(plan_backward(attention_operands(DType::BF16, 1, 32768, 32, 32, 128)))
      << "one head of 2 GiB";
  EXPECT_TRUE(plan_backward(attention_operands(DType::BF16, 1, 2048, 32, 1, 80)))
      << "one head of keys";
  // The cases of test_attention_library.cpp.
  EXPECT_TRUE(plan_backward(attention_operands(DType::F16, 1, 256, 4, 2, 16, true, 37)));
  EXPECT_TRUE(plan_backward(attention_operands(DType::BF16, 2, 128, 3, 1, 8, false)));
  EXPECT_TRUE(plan_backward(attention_operands(DType::BF16, 1, 4096, 1, 1, 8)));
  EXPECT_EQ(plan_backward(attention_operands(DType::BF16, 1, 1024, 8, 8, 256)).has_value(),
            GetParam().architecture == 900)
      << "large heads";
}

class CudnnRefusals : public CudnnPlans {};
INSTANTIATE_TEST_SUITE_P(H100, CudnnRefusals, testing::Values(kGpus[3]));

TEST_P(CudnnRefusals, AreNoErrors) {
  EXPECT_FALSE(plan(attention_operands(DType::BF16, 1, 64, 2, 2, 12))) << "rows of 24 bytes";
  const auto gpt2 = attention_operands(DType::BF16, 16, 1024, 12, 12, 64);
  EXPECT_FALSE(plan_attention(library_, {.properties = properties_.get()}, forward_of(gpt2), -1))
      << "no workspace is small enough";
  const auto part = *first_backward_part(gpt2);
  EXPECT_FALSE(
      plan_attention(library_, {.properties = properties_.get()}, backward_of(gpt2, part.part),
                     static_cast<int64_t>(part.workspace_bytes - kAttentionWorkspaceBytes)))
      << "gradients of scores and nothing more";
}

/// The stand-in driver has no GPU.
TEST(Cudnn, ThatDoesNotStartIsLeftOutByAFlag) {
  if (attention_library_name().empty()) GTEST_SKIP() << "there is no cuDNN here that will do";
  EXPECT_TRUE(attention_library_name().starts_with("cuDNN 9.")) << attention_library_name();
  const ConfigError error = error_of<ConfigError>([] { create_attention_library(); });
  EXPECT_SAYS(error, "use `attention` ebb");
}

}  // namespace
}  // namespace ebb::test
