// Resumes a run: finds the checkpoint, takes over its flags, and reports what has changed since.
//
// Errors: ConfigError if flags contradict each other; those of reading a checkpoint.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "device/errors.h"
#include "tools/option_flags.h"
#include "tools/run_config.h"
#include "tools/run_log.h"
#include "tools/saved_run.h"
#include "tools/train_options.h"
#include "tools/train_setup.h"

namespace ebb {

/// A checkpoint to resume from.
struct Resumed {
  std::string checkpoint;
  SavedRun run;
  RunConfig taken;          ///< flags that were not given and come from the checkpoint
  RunConfig left;           ///< --log and --trace of the checkpoint that this run does not write
  bool is_same_run = true;  ///< this run saves to the folder of the checkpoint
};

/// Evaluates --resume. nullopt if it was not given, or if --save has no checkpoint yet. Flags that
/// were not given get the values of the checkpoint. --save, if not given, gets the folder of the
/// checkpoint. A log or trace that only the checkpoint names is written only if it is the log or
/// trace of this run, and not if the run saves to another folder: a checkpoint may come from
/// somebody else. Throws ConfigError if --log names the log of another run. The model's
/// configuration also comes from the checkpoint, because the folder of the model may no longer
/// exist.
std::optional<Resumed> take_up(CommandLine& line, TrainOptions& options);

/// Returns the result of `work`. Its errors name the flags that come from the checkpoint.
template <class Work>
auto naming_origin(const std::optional<Resumed>& resumed, const Work& work) {
  try {
    return work();
  } catch (const PlanError&) {
    throw;
  } catch (const ConfigError& error) {
    if (!resumed) throw;
    throw ConfigError(with_origin(with_flags(error.what()), resumed->taken));
  }
}

/// What the log of the run needs. A run that is not resumed gets a new id.
LoggedRun logged_run(const std::optional<Resumed>& resumed);

/// The position at which the run begins. If the sequence length changed, the token stays the same.
RunPosition start_of(const std::optional<Resumed>& resumed, const TrainSetup& setup);

/// ConfigError if the checkpoint is past the end of the run.
void check_end(const std::optional<Resumed>& resumed, const TrainSetup& setup);
/// True if this run resumes from the state after its last step. False if it does not resume.
bool is_finished(const std::optional<Resumed>& resumed, const TrainSetup& setup);

/// "ebb 0.1.0 on host with bf16-dot arithmetic, AuthenticAMD 26/2". Runs with equal texts compute
/// equal bits.
std::string written_by(const TrainOptions& options, const TrainSetup& setup);

/// Hashes of samples of the data and of the labels, in hexadecimal.
struct DataHashes {
  std::string data, labels;  ///< labels: empty if there are none
};
DataHashes data_hashes(const TrainSetup& setup);

/// Notices before the run: where it begins, and why results may differ from those of a run that was
/// never interrupted. `config` is the configuration of this run.
std::vector<std::string> resume_notices(const TrainOptions& options,
                                        const std::optional<Resumed>& resumed,
                                        const TrainSetup& setup, const RunConfig& config);

}  // namespace ebb
