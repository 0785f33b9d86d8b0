// The messages of the library name options, as in "lower `device_memory`". For the user of a tool,
// with_flags() names the flag of each option instead: "lower --device-memory". A pure function.
#pragma once

#include <string>
#include <string_view>

namespace ebb {

/// Replaces each option between backquotes, and the backquotes, by its flag. Other text between
/// backquotes is unchanged, for example an option that has no flag.
std::string with_flags(std::string_view message);

}  // namespace ebb
