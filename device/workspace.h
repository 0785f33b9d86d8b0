// Scratch memory that the kernels of one compute stream share. A kernel states the bytes that it
// needs in Cost::workspace_bytes.
#pragma once

#include <cstddef>

namespace ebb {

struct Workspace {
  std::byte* data = nullptr;
  size_t bytes = 0;
};

}  // namespace ebb
