// cuBLASLt where it is missing: the GPU is then one that will not do, and `--device auto` takes the
// host; and cuDNN, which need not be there. The loader of this program finds what a test says it
// does.
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

/// In place of the system's, which everybody else's libraries still come from.
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

std::string error_of_loading() {
  return error_of<ConfigError>([] { CublasLibrary(); }).what();
}

TEST(CublasLibrary, IsAskedForWhereItIsMissing) {
  found_library = nullptr;
  const std::string error = error_of_loading();
  EXPECT_NE(error.find("LD_LIBRARY_PATH, or use --device host"), std::string::npos) << error;
}

TEST(CublasLibrary, ThatLacksACallIsNamedByIt) {
  found_library = RTLD_NEXT;  // nobody has the call
  const std::string error = error_of_loading();
  EXPECT_NE(error.find("has no cublasLtCreate"), std::string::npos) << error;
  EXPECT_NE(error.find("or use --device host"), std::string::npos) << error;
}

/// Nothing needs it: attention is then ours.
TEST(CudnnLibrary, IsDoneWithoutWhereItIsMissingOrLacksACall) {
  for (void* found : {static_cast<void*>(nullptr), RTLD_NEXT}) {
    found_library = found;
    EXPECT_EQ(attention_library_name(), "");
  }
}

}  // namespace
}  // namespace ebb::test
