// A folder of checkpoints: removes old ones, and locks the folder for a run that saves there.
//
//   DIR/step-N/state.ebb       see io/state_file.h
//   DIR/step-N/training.json   see tools/saved_run.h
//   DIR/step-N/train.toml      the flags, as --config reads them
//   DIR/step-N/...             the weights, as a Hugging Face folder
//   DIR/best                   a link to the step with the lowest evaluation loss (--save-best)
// Folders of other names (step-N.unfinished, step-N.removed) were left by a run that was killed,
// or are old checkpoints that could not be removed.
//
// Errors: IoError; FormatError; ConfigError if flags and folder contradict each other.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "tools/saved_steps.h"

namespace ebb {

/// Receives one line about a problem that does not stop the run.
using Notice = std::function<void(const std::string& text)>;

/// Removes checkpoints up to `step`, except the newest `keep`; none if `keep` is 0. Checkpoints
/// of later steps stay, and so do that of the step `best`, if given, and those with a state if the
/// one of `step` has none. If a checkpoint cannot be removed, `notice` is called; this is no error.
void remove_old_checkpoints(const std::string& folder, uint64_t step, uint64_t keep,
                            std::optional<uint64_t> best, const Notice& notice);

/// Makes the link DIR/best lead to a checkpoint. If that is not possible, `notice` is called.
void link_best(const std::string& folder, uint64_t step, const Notice& notice);

/// A folder locked for one run. Creates the folder and removes unfinished checkpoints.
class SaveFolder {
 public:
  /// Throws ConfigError if another run saves to this folder, if the newest checkpoint in it is not
  /// `resumed`, from which this run resumes at `step` (empty: the run does not resume), or if a
  /// name of a later checkpoint is taken.
  SaveFolder(std::string path, const std::string& resumed, uint64_t step);
  /// Unlocks the folder. If the constructor made it and it is still empty, removes it.
  ~SaveFolder();
  SaveFolder(const SaveFolder&) = delete;
  SaveFolder& operator=(const SaveFolder&) = delete;

  const std::string& path() const { return path_; }
  /// Throws IoError if fewer than `bytes` bytes of the disk are free.
  void check_room(uint64_t bytes) const;
  uint64_t free_bytes() const;

 private:
  void lock() const;
  void remove_rests() const;
  void check_newest(const std::string& resumed) const;
  void check_names(uint64_t step) const;

  std::string path_;
  bool is_new_ = false;
  int descriptor_ = -1;
};

}  // namespace ebb
