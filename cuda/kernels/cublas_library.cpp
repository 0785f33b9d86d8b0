#include "cuda/kernels/cublas_library.h"

#include <dlfcn.h>

#include <string>

#include "device/errors.h"

namespace ebb {
namespace {

/// Where the loader looks, then where the toolkit was that this was built with.
void* open_library() {
  const std::string name = "libcublasLt.so." + std::to_string(CUBLAS_VER_MAJOR);
  for (const std::string& path : {name, std::string(EBB_CUDA_LIBRARIES) + "/" + name}) {
    if (void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL)) return library;
  }
  throw ConfigError("cannot load " + name + ", which comes with the CUDA toolkit (or NVIDIA's " +
                    "package nvidia-cublas); add its folder to LD_LIBRARY_PATH, or use --device " +
                    "host");
}

}  // namespace

CublasLibrary::CublasLibrary() {
  void* const library = open_library();
  const auto find = [library]<class Call>(Call& call, const char* name) {
    call = reinterpret_cast<Call>(dlsym(library, name));
    if (call != nullptr) return;
    throw ConfigError(std::string("this cuBLASLt has no ") + name + "; install that of CUDA " +
                      std::to_string(CUBLAS_VER_MAJOR) + ", or use --device host");
  };
  find(Create, "cublasLtCreate");
  find(Destroy, "cublasLtDestroy");
  find(GetStatusString, "cublasLtGetStatusString");
  find(Matmul, "cublasLtMatmul");
  find(MatmulAlgoGetHeuristic, "cublasLtMatmulAlgoGetHeuristic");
  find(MatmulDescCreate, "cublasLtMatmulDescCreate");
  find(MatmulDescDestroy, "cublasLtMatmulDescDestroy");
  find(MatmulDescSetAttribute, "cublasLtMatmulDescSetAttribute");
  find(MatrixLayoutCreate, "cublasLtMatrixLayoutCreate");
  find(MatrixLayoutDestroy, "cublasLtMatrixLayoutDestroy");
  find(MatmulPreferenceCreate, "cublasLtMatmulPreferenceCreate");
  find(MatmulPreferenceDestroy, "cublasLtMatmulPreferenceDestroy");
  find(MatmulPreferenceSetAttribute, "cublasLtMatmulPreferenceSetAttribute");
}

}  // namespace ebb
