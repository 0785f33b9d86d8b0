// How the ranks of one machine meet, if a run may have several machines.
//
// Thread-safety: any thread may call these functions.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string_view>

#include "comm/ranks.h"

namespace ebb {

/// Makes this process a rank in the memory of a run, of which it gets the file descriptor.
using JoinMemory = std::function<std::unique_ptr<Ranks>(int memory)>;

/// As meet_ranks() (comm/process_ranks.h), for the ranks of the machine of `rank`. The first of
/// them gives the memory to the others. REQUIRES: rank < size; per_machine divides size.
std::unique_ptr<Ranks> meet_ranks_of_machine(std::string_view run, uint32_t rank, uint32_t size,
                                             uint32_t per_machine, double timeout_s,
                                             const JoinMemory& join);

}  // namespace ebb
