// The description of a run in a checkpoint: training.json with its step, its position in the data
// and its flags.
//
// The last field of training.json is a checksum of the other fields: XXH64 of the file without this
// field, as written. The file also has checksums of config.json and train.toml, because a resumed
// run with another config.json would be another run. Files of old programs have no checksums. A
// checkpoint may come from somebody else: no field is used before it is checked.
//
// Errors: InputError and IoError; FormatError with the file, the field and what is allowed.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "tools/best_evaluation.h"
#include "tools/run_config.h"
#include "tools/saved_steps.h"

namespace ebb {

/// The progress of a run.
struct RunPosition {
  uint64_t step = 0;         ///< optimizer steps made
  uint64_t num_samples = 0;  ///< samples used so far; the next step begins at this one
  uint64_t num_tokens = 0;   ///< tokens seen so far
  bool operator==(const RunPosition&) const = default;
};

struct SavedRun {
  RunPosition position;
  uint64_t data_tokens = 0;  ///< tokens of the data
  /// Hashes of samples of the data and of the labels, in hexadecimal; empty: unknown, or no labels.
  std::string data_hash = {}, labels_hash = {};
  std::string written_by;     ///< program, device, arithmetic, processor
  RunConfig config;           ///< with resolved values
  std::string run_id = {};    ///< empty in old checkpoints
  std::string log_line = {};  ///< the log's line of the last step; empty: none
  BestEvaluation best = {};
  bool is_protected = true;  ///< false: an old file without checksum was read
  bool operator==(const SavedRun&) const = default;
};

/// Writes training.json and train.toml, synced.
void write_saved_run(const std::string& checkpoint, const SavedRun& run);
/// Throws FormatError if training.json was changed after it was written.
SavedRun read_saved_run(const std::string& checkpoint);

/// The position and the id as the numbers that state.ebb contains (model_zoo/checkpoint.h).
std::map<std::string, uint64_t> numbers_of(const SavedRun& run);
/// Throws FormatError if state.ebb is damaged, or is of another run or position than training.json.
void check_state(const std::string& checkpoint, const SavedRun& run);

}  // namespace ebb
