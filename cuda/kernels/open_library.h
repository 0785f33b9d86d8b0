// Loads NVIDIA's libraries at run time, so that one binary runs with and without them.
#pragma once

#include <string>

namespace ebb {

/// Searches the paths of the loader, then the toolkit of the build. Returns null if the library is
/// not found. The library stays loaded. Thread-safe.
void* open_library(const std::string& name);

}  // namespace ebb
