// NVIDIA's libraries, found at run time: one binary runs with and without them.
#pragma once

#include <string>

namespace ebb {

/// Where the loader looks, then where the toolkit was that this was built with. Null: nowhere. It
/// stays loaded. Thread-safe.
void* open_library(const std::string& name);

}  // namespace ebb
