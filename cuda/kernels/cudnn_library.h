// cuDNN, loaded if it is installed. Attention is faster with cuDNN, and Ebb works without it.
#pragma once

#include <cudnn.h>

#include <string>

namespace ebb {

/// The functions that Ebb calls, under the library's names. Thread-safe.
struct CudnnLibrary {
  /// Loads the library; it stays loaded. All pointers are null if the library is not found, is too
  /// old or lacks a function.
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
