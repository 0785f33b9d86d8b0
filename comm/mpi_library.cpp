#include "comm/mpi_library.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <string>

#include "device/errors.h"

namespace ebb {
namespace {

constexpr const char* kLibrary = "libebb_mpi.so";

/// Where this code is: the folder of `ebb`, of libebb.so or of a user's program.
std::string own_folder() {
  Dl_info info = {};
  if (dladdr(reinterpret_cast<const void*>(&load_mpi_library), &info) == 0) return ".";
  const std::string file = info.dli_fname;
  const size_t slash = file.rfind('/');
  return slash == std::string::npos ? "." : file.substr(0, slash);
}

}  // namespace

// Components of MPI that are loaded later search its symbols among the global ones.
const MpiFunctions& load_mpi_library() {
  void* library = dlopen(kLibrary, RTLD_NOW | RTLD_GLOBAL);
  const std::string why = library == nullptr ? dlerror() : "";
  for (const char* folder : {"", "/../" EBB_LIBRARY_FOLDER, "/../lib"}) {
    if (library != nullptr) break;
    const std::string file = own_folder() + folder + "/" + kLibrary;
    library = dlopen(file.c_str(), RTLD_NOW | RTLD_GLOBAL);
  }
  if (library == nullptr) {
    throw ConfigError(
        fmt::format("ranks of several machines need {}, which cannot be loaded ({}). CMake builds "
                    "it where it finds MPI, for example after 'apt install libopenmpi-dev': "
                    "configure and build Ebb again, or set LD_LIBRARY_PATH to its folder",
                    kLibrary, why));
  }
  const auto functions =
      reinterpret_cast<const MpiFunctions* (*)()>(dlsym(library, kMpiFunctionsName));
  if (functions == nullptr) {
    throw ConfigError(
        fmt::format("{} belongs to another version of Ebb: build it again", kLibrary));
  }
  return *functions();
}

}  // namespace ebb
