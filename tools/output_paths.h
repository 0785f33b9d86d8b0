// Checks that a command does not write to a file that it also reads or writes under another flag.
//
// Errors: ConfigError, which names the flags and the path.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "tools/train_options.h"

namespace ebb {

struct FlagPath {
  std::string_view flag;
  std::string path;  ///< empty: not given
};

/// Refuses an output that is an input or another output, however it is spelled, and an output in a
/// folder that is an input. Devices and pipes may be given twice.
void refuse_same_files(const std::vector<FlagPath>& inputs, const std::vector<FlagPath>& outputs);

/// Checks the paths of a run, and `more_outputs`, which only this command has. `checkpoint`: the
/// folder from which the run resumes; empty: none.
void refuse_same_files(const TrainOptions& options, const std::vector<FlagPath>& more_outputs = {},
                       const std::string& checkpoint = {});

}  // namespace ebb
