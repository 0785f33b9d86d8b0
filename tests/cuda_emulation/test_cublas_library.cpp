// Without cuBLASLt a GPU is refused, and `--device auto` uses the host. cuDNN may be missing. This
// program replaces dlopen, so that each test decides which library is found.
#include <dlfcn.h>
#include <gtest/gtest.h>

#include <string>
#include <string_view>

#include "cuda/attention_library.h"
#include "cuda/kernels/cublas_library.h"
#include "device/errors.h"
#include "tests/error_of.h"

namespace {
void* found_library = nullptr;
}

/// Replaces the system's dlopen, which still loads all other libraries.
extern "C" void* dlopen(const char* file, int flags) noexcept {
  const std::string_view name = file == nullptr ? "" : file;
  for (const char* library : {"cublasLt", "cudnn"}) {
    if (name.find(library) != std::string_view::npos) return found_library;
  }
  static const auto system =
      reinterpret_cast<void* (*)(const char*, int)>(dlsym(RTLD_NEXT, "dlopen"));
  return system(file, flags);
}

namespace ebb::test {
namespace {

ConfigError error_of_loading() {
  return error_of<ConfigError>([] { CublasLibrary(); });
}

TEST(CublasLibrary, IsAskedForWhereItIsMissing) {
  found_library = nullptr;
  const ConfigError error = error_of_loading();
  EXPECT_SAYS(error, "LD_LIBRARY_PATH, or use `device` host");
}

TEST(CublasLibrary, ThatLacksACallIsNamedByIt) {
  found_library = RTLD_NEXT;  // no library has the function
  const ConfigError error = error_of_loading();
  EXPECT_SAYS(error, "has no cublasLtCreate");
  EXPECT_SAYS(error, "or use `device` host");
}

/// Without cuDNN, attention uses our own kernels.
TEST(CudnnLibrary, IsDoneWithoutWhereItIsMissingOrLacksACall) {
  for (void* found : {static_cast<void*>(nullptr), RTLD_NEXT}) {
    found_library = found;
    EXPECT_EQ(attention_library_name(), "");
  }
}

}  // namespace
}  // namespace ebb::test
