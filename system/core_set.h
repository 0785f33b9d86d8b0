// A set of processor cores, by the numbers that the operating system gives them.
#pragma once

#include <bitset>

namespace ebb {

/// A core is a hardware thread. Cores with numbers from 8192 on are ignored.
using CoreSet = std::bitset<8192>;

}  // namespace ebb
