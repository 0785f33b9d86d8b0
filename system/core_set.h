// A set of processor cores, by the numbers that the operating system gives them.
#pragma once

#include <bitset>

namespace ebb {

/// A core is a hardware thread. Machines with more of them than this are not known.
using CoreSet = std::bitset<8192>;

}  // namespace ebb
