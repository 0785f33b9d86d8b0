// The finished gradient of a range of parameters, made on the host from gradient sums of several
// groups of micro-batches.
//
//   const std::byte* groups[] = {sums_of_rank_0, sums_of_rank_1};
//   const GroupSums uses[] = {groups};   // a tied weight has more than one use
//   round_sums_in_order(team, uses, DType::F32, count, gradient, DType::BF16, partials);
//
// The bits are those of one host device that adds the same arrays in the same order with Accumulate
// and RoundGradient (device/kernels/): they do not depend on the number of threads, on the
// instruction set, or on addresses. Denormals are flushed as there. If two NaNs
// are added, the payload of the result is unspecified. A GPU gives the same bits, but may give
// every NaN another payload.
//
// Each input is read once. Nothing allocates. Threads: as ThreadTeam; arguments that violate the
// contract throw LogicError.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "device/dtype.h"

namespace ebb {

class ThreadTeam;  // system/thread_team.h

/// The gradient sums of one use of a parameter: an array for each group of micro-batches, in the
/// order in which the groups are added.
using GroupSums = std::span<const std::byte* const>;

/// Stores `count` elements of a finished gradient. The sums are of the type `sum_type`, and are
/// widened to fp32. Element i of a use is ((g0[i] + g1[i]) + g2[i]) + ... over the groups of the
/// use, in fp32. Element i of the gradient is the sum over the uses, ((u0 + u1) + u2) + ...,
/// rounded once to `type`. A sum begins with its first term and not with 0, because 0 + -0 is +0.
/// If `partials` is not empty, it also gets partial_norms() of the result. REQUIRES: at least one
/// use, and at least one group in each; sum_type is F32 or BF16; is_float(type); the gradient does
/// not overlap the sums.
void round_sums_in_order(ThreadTeam& team, std::span<const GroupSums> uses, DType sum_type,
                         int64_t count, std::byte* gradient, DType type,
                         std::span<double> partials = {});

/// Adds the groups of one use to the sum of earlier groups: element i of `sum` is
/// ((before[i] + g0[i]) + g1[i]) + ... in fp32. With `before` null, it is (g0[i] + g1[i]) + ...
/// Rounding all
/// groups at once, or rounding such a sum, gives the same bits (round_sums_in_order()). `sum` may
/// be `before`, and overlaps nothing else. REQUIRES: at least one group; sum_type is F32 or BF16.
void add_in_order(ThreadTeam& team, const float* before, GroupSums groups, DType sum_type,
                  int64_t count, float* sum);

/// For each piece of kPieceElements elements, counted from the first element of `gradient`, the sum
/// of its squares: the partial norms of SquaredNormPieces (device/kernels/update.h). For a chunk
/// whose gradient several calls have stored. REQUIRES: is_float(type), and one partial for each
/// piece.
void partial_norms(ThreadTeam& team, const std::byte* gradient, DType type, int64_t count,
                   std::span<double> partials);

}  // namespace ebb
