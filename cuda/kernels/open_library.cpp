#include "cuda/kernels/open_library.h"

#include <dlfcn.h>

namespace ebb {

void* open_library(const std::string& name) {
  for (const std::string& path : {name, std::string(EBB_CUDA_LIBRARIES) + "/" + name}) {
    if (void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL)) return library;
  }
  return nullptr;
}

}  // namespace ebb
