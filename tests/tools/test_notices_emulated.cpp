// What commands print about the kernels that ran. The GPU is emulated.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/cuda_emulation/emulated_device.h"
#include "tests/error_of.h"
#include "tests/tools/run_ebb.h"
#include "tools/commands.h"

namespace ebb::test {
namespace {

/// The library is loaded, but has no kernels, so Ebb's own kernels run.
class KernelNotices : public testing::Test {
 protected:
  KernelNotices() {
    emulation::settings().attention_library = "plain loops";
    emulation::settings().attention_has_kernels = false;
  }
  ~KernelNotices() override { emulation::settings() = {}; }

  /// Runs a command on a small model and returns what it prints on stderr.
  std::string stderr_of(Arguments command) const {
    testing::internal::CaptureStderr();
    testing::internal::CaptureStdout();
    const int exit_code = run_command(
        command + Arguments{"--model", model_, "--init", "random", "--device", "cuda", "--threads",
                            "1", "--chunk-size", "2MiB", "--data", data_, "--token-type", "bytes",
                            "--seq-length", "8", "--micro-batch-size", "1"});
    testing::internal::GetCapturedStdout();
    const std::string text = testing::internal::GetCapturedStderr();
    EXPECT_EQ(exit_code, 0) << text;
    return text;
  }

  const TemporaryFolder folder_;
  const std::string data_ = folder_.write("text", std::string(64, 'x'));
  const std::string model_ =
      (folder_.write("config.json", R"({"architectures": ["GPT2LMHeadModel"], "model_type": "gpt2",
          "n_embd": 16, "n_layer": 1, "n_head": 2, "n_positions": 8, "vocab_size": 257,
          "activation_function": "gelu_new", "layer_norm_epsilon": 1e-5})"),
       folder_.path().string());
};

TEST_F(KernelNotices, ArePrintedByAnEvaluation) {
  EXPECT_SAYS(
      stderr_of({"eval", "--eval-batches", "1"}),
      "\nthe forward of attention (1 x 8 tokens, 2 heads of 8 channels) uses Ebb's own kernel");
}

}  // namespace
}  // namespace ebb::test
