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
/// A number goes round the ring of ranks, and each rank adds to it. Creates signals.
void check_ring(Ranks& ranks);
/// Several threads of each rank copy random parts of the memory of all ranks at the same time.
void check_reads_of_threads(Ranks& ranks);
/// If one rank makes another collective call than the others, all of them throw the same error.
/// REQUIRES: at least two ranks.
void check_disagreements(Ranks& ranks);

}  // namespace ebb::test
