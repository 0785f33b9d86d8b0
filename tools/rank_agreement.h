// Whether the ranks of a run agree about what they compute. Under mpirun, torchrun and srun each
// rank has a command line of its own.
//
// Thread-safety: one thread.
#pragma once

#include <map>
#include <span>
#include <string>

#include "comm/ranks.h"
#include "tools/train_options.h"
#include "tools/train_setup.h"

namespace ebb {

struct TrainRequest;

/// What must be the same on all ranks: names and texts, for example "--lr" and "0.0003".
using RankDescription = std::map<std::string, std::string>;

/// The program, the arithmetic, the data and all options except those that each rank may choose:
/// its budgets, its threads, and files that only rank 0 writes. `setup` needs no plan.
RankDescription describe_rank(const TrainRequest& request, const TrainSetup& setup);

/// "rank 2 has --lr 0.001, rank 0 has --lr 0.0003": the first name whose text is not that of rank
/// 0. Empty if all are the same. Pure.
std::string first_difference(std::span<const RankDescription> ranks);

/// Throws ConfigError with the first difference on all ranks, unless all are the same. Collective.
void check_ranks_agree(Ranks& ranks, const RankDescription& mine);

}  // namespace ebb
