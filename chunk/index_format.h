// Lets fmt print an index (index.h) as a number. Include it in every file that formats an index.
#pragma once

#include <fmt/core.h>

#include "chunk/index.h"

template <class Tag>
struct fmt::formatter<ebb::Index<Tag>> : fmt::formatter<uint32_t> {
  auto format(ebb::Index<Tag> index, fmt::format_context& context) const {
    return fmt::formatter<uint32_t>::format(index, context);
  }
};
