// How a command that trains sets up its ranks: all of them together, in this order:
//
//   RankProcesses processes = start_ranks(options, command);
//   take_place(options, processes);
//   ...                                     // open files, watch signals
//   auto setup = set_up_ranks(request, processes, signals);
//
// Thread-safety: one thread. Errors: those of RankProcesses, of train_setup.h and of text_data.h.
// If a rank ends because of an error, call RankProcesses::fail(), so that the others do not wait.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "tools/rank_processes.h"
#include "tools/signals.h"
#include "tools/train_setup.h"
#include "tools/training_run.h"

namespace ebb {

/// `command`: the name of the command and its arguments, with which further processes start.
/// REQUIRES: this process has started no thread.
RankProcesses start_ranks(const TrainOptions& options, const std::vector<std::string>& command);

/// Sets the place of this rank in the options, and its cores. Collective.
void take_place(TrainOptions& options, const RankProcesses& processes);

/// Makes the tokens of text, and sets up and plans the run. Ranks whose options, data or program
/// differ are refused. nullopt if a signal came to any rank. Collective.
std::optional<TrainSetup> set_up_ranks(TrainRequest& request, const RankProcesses& processes,
                                       const Signals& signals);

/// The greatest signal that came to a rank; 0: none. Collective.
uint8_t signal_of_ranks(const RankProcesses& processes, const Signals& signals);

}  // namespace ebb
