// cuDNN, loaded where it is there: attention is faster with it, and nothing needs it.
#pragma once

#include <cudnn.h>

#include <string>

namespace ebb {

/// What we call of it, by its own names. Thread-safe.
struct CudnnLibrary {
  /// Null calls where the library is not found, lacks a call or is too old. It stays loaded.
  CudnnLibrary();
  [[nodiscard]] bool is_there() const { return Create != nullptr; }
  [[nodiscard]] std::string name() const;  ///< "cuDNN 9.19.0"

  decltype(&::cudnnCreate) Create = nullptr;
  decltype(&::cudnnDestroy) Destroy = nullptr;
  decltype(&::cudnnSetStream) SetStream = nullptr;
  decltype(&::cudnnGetVersion) GetVersion = nullptr;
  decltype(&::cudnnGetErrorString) GetErrorString = nullptr;
  decltype(&::cudnnGetLastErrorString) GetLastErrorString = nullptr;
  decltype(&::cudnnBackendCreateDescriptor) CreateDescriptor = nullptr;
  decltype(&::cudnnBackendDestroyDescriptor) DestroyDescriptor = nullptr;
  decltype(&::cudnnBackendSetAttribute) SetAttribute = nullptr;
  decltype(&::cudnnBackendGetAttribute) GetAttribute = nullptr;
  decltype(&::cudnnBackendFinalize) Finalize = nullptr;
  decltype(&::cudnnBackendExecute) Execute = nullptr;
};

}  // namespace ebb
