// Which GPUs, drivers and libraries are used. The error about one that cannot be used names a
// remedy.
#include <gtest/gtest.h>

#include <string>
#include <utility>

#include "cuda/gpus.h"
#include "device/device.h"
#include "device/errors.h"
#include "tests/cuda_emulation/emulated_backend.h"
#include "tests/cuda_emulation/emulated_device.h"
#include "tests/error_of.h"

namespace ebb::test {
namespace {

TEST_F(EmulatedBackend, WithoutADriverNoDeviceIsThereAndTheHostIsNamed) {
  emulation::settings().driver_version = 0;
  EXPECT_TRUE(probe_cuda().devices.empty());
  EXPECT_EQ(probe_cuda().note, "no CUDA driver on this machine");
  const auto text = error_of<ConfigError>([] { create_gpu(); });
  EXPECT_SAYS(text, "no CUDA driver");
  EXPECT_SAYS(text, "`device` host");
}

TEST_F(EmulatedBackend, ADriverWithoutAGpuIsToldFromNone) {
  emulation::settings().num_devices = 0;
  EXPECT_SAYS(probe_cuda().note, "driver for CUDA 13.0");
  EXPECT_SAYS(error_of<ConfigError>([] { create_gpu(); }), "`device` host");
}

TEST_F(EmulatedBackend, ALibraryForAttentionIsTakenWhereItIsAndAskedForWhereItIsNot) {
  EXPECT_EQ(probe_cuda().attention_library, "");
  const std::string ours = create_gpu()->info().name;
  EXPECT_SAYS(error_of<ConfigError>(
                  [] { create_gpu({.profile = {.attention = AttentionKernels::Cudnn}}); }),
              "LD_LIBRARY_PATH, or use `attention` ebb");
  emulation::settings().attention_library = "cuDNN 9.11.0";
  EXPECT_EQ(probe_cuda().attention_library, "cuDNN 9.11.0");
  EXPECT_EQ(create_gpu()->info().name, ours + ", attention by cuDNN 9.11.0");
  EXPECT_EQ(create_gpu({.profile = {.attention = AttentionKernels::Ebb}})->info().name, ours);
}

TEST_F(EmulatedBackend, GpusThatWillNotDoAreRefusedByName) {
  EXPECT_SAYS(error_of<ConfigError>([] { create_gpu({.cuda_index = 1}); }),
              "there is no GPU 1: this machine has 1");
  emulation::settings().architecture = 75;
  EXPECT_SAYS(error_of<ConfigError>([] { create_gpu(); }), "sm_75 is older than sm_80");
}

/// The GPU is refused before a run is planned.
TEST_F(EmulatedBackend, AGpuThatMapsNoMemoryIsRefused) {
  emulation::settings().maps_memory = false;
  const auto error = error_of<ConfigError>([] { create_gpu(); });
  EXPECT_SAYS(error, "sm_90 cannot map its memory");
  EXPECT_SAYS(error, "`device` host");
}

/// A build without code for the GPU is refused before any work.
TEST_F(EmulatedBackend, AGpuThatThisBuildHasNoCodeForIsRefused) {
  emulation::settings().code_status = cudaErrorNoKernelImageForDevice;
  const auto error = error_of<ConfigError>([] { create_gpu(); });
  EXPECT_SAYS(error, "sm_90: cudaErrorNoKernelImageForDevice");
  EXPECT_SAYS(error, "-DCMAKE_CUDA_ARCHITECTURES=native");
}

/// The same holds if the driver must compile PTX and cannot.
TEST_F(EmulatedBackend, ADriverThatCompilesNoPtxIsRefusedWithTheRemedy) {
  const std::pair<cudaError_t, const char*> cases[] = {
      {cudaErrorJitCompilerNotFound, "JitCompilerNotFound; install libnvidia-ptxjitcompiler"},
      {cudaErrorJitCompilationDisabled, "JitCompilationDisabled; unset CUDA_DISABLE_PTX_JIT"},
  };
  for (const auto& [status, says] : cases) {
    emulation::settings().code_status = status;
    const auto error = error_of<ConfigError>([] { create_gpu(); });
    EXPECT_SAYS(error, says);
    EXPECT_SAYS(error, "`device` host");
  }
}

TEST(Architectures, AreNamedWithWhatNewerGpusNeed) {
  const std::string text = architectures_text("80-real 90", 13000);
  EXPECT_SAYS(text,
              "compiled for sm_80, sm_90; newer GPUs, such as sm_100 and sm_120, compile them");
  EXPECT_SAYS(text, "a driver for CUDA 13.0 or later");
  EXPECT_SAYS(architectures_text("90-real", 12040), "compiled for sm_90; newer GPUs");
  EXPECT_SAYS(architectures_text("90-real", 12040), "have none in this build");
  EXPECT_SAYS(architectures_text("89-real 90-virtual", 12040), "for sm_89; newer");
  EXPECT_SAYS(architectures_text("89-real 90-virtual", 12040), "CUDA 12.4 or later");
}

/// With a driver that is too old there is no usable GPU, so `--device auto` uses the host.
TEST_F(EmulatedBackend, ADriverThatLacksACallIsRefusedByTheCall) {
  for (const char* call : {"cuMemMap", "cuStreamWaitValue32"}) {
    emulation::settings().missing_driver_call = call;
    const auto text = error_of<ConfigError>([] { create_gpu(); });
    EXPECT_SAYS(text, std::string("has no ") + call);
    EXPECT_SAYS(text, "12.4 or later, or `device` host");
  }
}

}  // namespace
}  // namespace ebb::test
