#include "cuda/kernels/cudnn_library.h"

#include <dlfcn.h>

#include "cuda/kernels/open_library.h"

namespace ebb {
namespace {

/// cudnn-frontend's list of known bugs says that 9.10.0 and 9.10.1 compute wrong results for
/// attention.
constexpr size_t kOldest = 91100;

}  // namespace

CudnnLibrary::CudnnLibrary() {
  void* const library = open_library("libcudnn.so.9");
  if (library == nullptr) return;
  bool has_all = true;
  const auto find = [&]<class Call>(Call& call, const char* name) {
    call = reinterpret_cast<Call>(dlsym(library, name));
    has_all = has_all && call != nullptr;
  };
  find(Create, "cudnnCreate");
  find(Destroy, "cudnnDestroy");
  find(SetStream, "cudnnSetStream");
  find(GetVersion, "cudnnGetVersion");
  find(GetErrorString, "cudnnGetErrorString");
  find(GetLastErrorString, "cudnnGetLastErrorString");
  find(CreateDescriptor, "cudnnBackendCreateDescriptor");
  find(DestroyDescriptor, "cudnnBackendDestroyDescriptor");
  find(SetAttribute, "cudnnBackendSetAttribute");
  find(GetAttribute, "cudnnBackendGetAttribute");
  find(Finalize, "cudnnBackendFinalize");
  find(Execute, "cudnnBackendExecute");
  if (!has_all || GetVersion() < kOldest) Create = nullptr;
}

std::string CudnnLibrary::name() const {
  const size_t version = GetVersion();
  return "cuDNN " + std::to_string(version / 10000) + "." + std::to_string(version / 100 % 100) +
         "." + std::to_string(version % 100);
}

}  // namespace ebb
