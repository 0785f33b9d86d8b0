// The processor's peak: arithmetic on registers alone.
#pragma once

#include <cstdint>

#include "device/arithmetic.h"
#include "system/thread_team.h"

namespace ebb::bench {

/// Does independent chains of multiply-adds, or of dot products of bf16 pairs, on every thread of
/// the team; returns their floating-point operations.
/// REQUIRES: this processor can do `arithmetic`.
double run_at_peak(ThreadTeam& team, Arithmetic arithmetic, int64_t rounds);

/// The dot products of one thread, as run_at_peak() uses them.
double dot_products(int64_t rounds, float* sink);

}  // namespace ebb::bench
