// Resuming from a checkpoint: which checkpoint, what its run requested, and what has changed since.
//
// Errors: ConfigError where flags do not go together; IoError and FormatError of the files.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "tools/checkpoint.h"
#include "tools/train_options.h"
#include "tools/train_setup.h"

namespace ebb {

/// A checkpoint to go on from.
struct Resumed {
  std::string checkpoint;
  SavedRun run;
  RunConfig taken;          ///< flags that were not given, and are the checkpoint's
  RunConfig left;           ///< files of the run that made it, which only that run goes on with
  bool is_same_run = true;  ///< it goes on in the folder in which the checkpoint was made
};

/// What --resume means; nullopt where it was not given, or there is nothing to resume under --save
/// yet. Flags that were not given become the checkpoint's; --save becomes its folder. A run that
/// does not go on in the folder in which the checkpoint was made has no part in its log and trace.
/// The model's configuration is the checkpoint's, too: its folder may be gone since.
std::optional<Resumed> take_up(CommandLine& line, TrainOptions& options);

/// Where the run begins. A sequence of another length begins at the same token.
RunPosition start_of(const std::optional<Resumed>& resumed, const TrainSetup& setup);

/// ConfigError where the checkpoint is past the run's end.
void check_end(const std::optional<Resumed>& resumed, const TrainSetup& setup);

/// "ebb 0.1.0 on host with bf16-dot arithmetic, AuthenticAMD 26/2": equal where the same bits are
/// promised.
std::string written_by(const TrainSetup& setup);

/// What to say before the run: where it begins, and why results may differ from those of a run that
/// was never interrupted. `config` is the run's own.
std::vector<std::string> resume_notices(const TrainOptions& options,
                                        const std::optional<Resumed>& resumed,
                                        const TrainSetup& setup, const RunConfig& config);

}  // namespace ebb
