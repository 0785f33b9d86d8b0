// The id of a run: 16 hexadecimal digits. It marks the lines of its log, its trace and its
// checkpoints. A resumed run has the id of the run that it continues.
#pragma once

#include <string>
#include <string_view>

namespace ebb {

/// A random id. Thread-safe.
std::string new_run_id();
bool is_run_id(std::string_view text);

}  // namespace ebb
