#include "cuda/kernels/cublas_library.h"

#include <dlfcn.h>

#include <string>

#include "cuda/kernels/open_library.h"
#include "device/errors.h"

namespace ebb {

CublasLibrary::CublasLibrary() {
  const std::string name = "libcublasLt.so." + std::to_string(CUBLAS_VER_MAJOR);
  void* const library = open_library(name);
  if (library == nullptr) {
    throw ConfigError("cannot load " + name + ", which comes with the CUDA toolkit (or NVIDIA's " +
                      "package nvidia-cublas); add its folder to LD_LIBRARY_PATH, or use " +
                      "`device` host");
  }
  const auto find = [library]<class Call>(Call& call, const char* symbol) {
    call = reinterpret_cast<Call>(dlsym(library, symbol));
    if (call != nullptr) return;
    throw ConfigError(std::string("this cuBLASLt has no ") + symbol + "; install that of CUDA " +
                      std::to_string(CUBLAS_VER_MAJOR) + ", or use `device` host");
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
