// The machine files that are built into the program.
#pragma once

#include <span>
#include <string_view>

namespace ebb {

extern const std::span<const std::string_view> kMachinePresets;

}  // namespace ebb
