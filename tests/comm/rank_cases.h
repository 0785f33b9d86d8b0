// What each implementation of Ranks must do: each function runs on every rank of a run, and throws
// if something is wrong. They throw instead of using gtest's macros, because ranks may be
// processes.
#pragma once

#include "comm/ranks.h"

namespace ebb::test {

/// Exchanges of several lengths with different contents, many times.
void check_exchange(Ranks& ranks);
/// Each rank writes to its own memory, and reads that of all ranks, also of other machines.
void check_share(Ranks& ranks);
/// A number goes round the ring of ranks in shared memory, and each rank adds to it.
void check_ring(Ranks& ranks);

}  // namespace ebb::test
