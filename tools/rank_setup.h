// How a command that trains runs on several ranks. All of them call these functions together:
//
//   run_on_ranks(options, command, [&](const RankProcesses& processes) {
//     take_place(options, processes);
//     ...                                     // open files, watch signals
//     auto setup = set_up_ranks(request, processes, signals);
//     ...
//   });
//
// Thread-safety: one thread. Errors: those of RankProcesses, of train_setup.h and of text_data.h.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "tools/rank_processes.h"
#include "tools/signals.h"
#include "tools/train_setup.h"
#include "tools/training_run.h"

namespace ebb {

/// Makes the ranks of --ranks or of the environment, and returns the result of `work`, the exit
/// code of this process. An error of `work` ends the other ranks, too. `command`: the name of the
/// command and its arguments, with which further processes start. REQUIRES: this process has
/// started no thread.
int run_on_ranks(const TrainOptions& options, const std::vector<std::string>& command,
                 const std::function<int(const RankProcesses&)>& work);

/// Sets the place of this rank in the options, and binds this process to its cores: threads that
/// exist already stay where they are. Collective.
void take_place(TrainOptions& options, const RankProcesses& processes);

/// Makes the tokens of text, whose files it sets in the options, and sets up and plans the run.
/// Ranks whose data, program or options differ are refused, except for options that each rank may
/// choose (rank_agreement.h). nullopt if a signal came to any rank. Collective. REQUIRES:
/// take_place().
std::optional<TrainSetup> set_up_ranks(TrainRequest& request, const RankProcesses& processes,
                                       const Signals& signals);

/// The greatest signal that came to a rank; 0: none. Collective.
uint8_t signal_of_ranks(const RankProcesses& processes, const Signals& signals);

}  // namespace ebb
