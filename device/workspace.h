// Scratch shared by the kernels of one compute stream. A kernel asks through Cost::workspace_bytes.
#pragma once

#include <cstddef>

namespace ebb {

struct Workspace {
  std::byte* data = nullptr;
  size_t bytes = 0;
};

}  // namespace ebb
