// How a command that trains runs on several ranks. All of them call these functions together:
//
//   run_on_ranks(options, "train", arguments, [&](const RankProcesses& processes) {
//     take_place(options, processes);
//     const Signals signals = watch_signals(processes, on_first);
//     auto setup = set_up_ranks(request, processes, signals);
//     ...
//   });
//
// Thread-safety: one thread. Errors: those of RankProcesses, of train_setup.h and of text_data.h.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "tools/rank_processes.h"
#include "tools/signals.h"
#include "tools/train_setup.h"
#include "tools/training_run.h"

namespace ebb {

/// Makes the ranks of the environment, or those of --ranks or --devices, and returns the result of
/// `work`, the exit code of this process. An error of `work` ends the other ranks, too. Further
/// processes start with the same command and arguments. REQUIRES: this process has started no
/// thread.
int run_on_ranks(const TrainOptions& options, const std::string& command,
                 const std::vector<std::string>& arguments,
                 const std::function<int(const RankProcesses&)>& work);

/// Sets the place of this rank in the options. If there are several ranks, binds this process to
/// its cores; threads that exist already are not bound. Collective.
void take_place(TrainOptions& options, const RankProcesses& processes);

/// Watches the signals of this process as signals.h says. If a rank has failed, a signal ends the
/// process at once, because the step waits for that rank.
Signals watch_signals(const RankProcesses& processes,
                      std::function<void(const char* name)> on_first);

/// The greatest signal that came to a rank; 0: none. Collective.
uint8_t signal_of_ranks(const RankProcesses& processes, const Signals& signals);

/// Makes the tokens of text, whose files it sets in the options, and sets up and plans the run.
/// Ranks whose data, program or options differ are refused, except for options that each rank may
/// choose (rank_agreement.h). nullopt if a signal came to any rank. Collective. REQUIRES:
/// take_place().
std::optional<TrainSetup> set_up_ranks(TrainRequest& request, const RankProcesses& processes,
                                       const Signals& signals);

}  // namespace ebb
