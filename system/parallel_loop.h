// Parallel loops that divide their work into pieces, for kernels of the host.
//
//   void run(ThreadTeam& team) const {
//     float* const to = y.as<float>();
//     const float* const from = x.as<float>();
//     for_each_range(team, y.num_elements(), 16384, [&](int64_t begin, int64_t end) {
//       for (int64_t i = begin; i < end; ++i) to[i] = 2 * from[i];
//     });
//   }
//
// The pieces follow from n and `grain` alone, so a sum for each piece, added in the order of the
// pieces, has the same bits for every number of threads. A piece should take some 10 us or more.
// Exceptions and threads: as ThreadTeam::for_each().
#pragma once

#include <algorithm>
#include <cstdint>

#include "system/thread_team.h"

namespace ebb {

constexpr int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

/// Runs body(begin, end) over [0, n) in pieces of `grain`; only the last piece may be shorter.
/// REQUIRES: grain > 0.
template <class Body>
void for_each_range(ThreadTeam& team, int64_t n, int64_t grain, const Body& body) {
  team.for_each(ceil_div(n, grain),
                [&](int64_t i) { body(i * grain, std::min(n, (i + 1) * grain)); });
}

/// Runs body(row) for n rows, `grain` rows in a piece.
template <class Body>
void for_each_row(ThreadTeam& team, int64_t n, int64_t grain, const Body& body) {
  for_each_range(team, n, grain, [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) body(row);
  });
}

}  // namespace ebb
