// Checks that a command does not write to a file that it also reads or writes under another flag.
//
// Errors: ConfigError, which names the flags and the path.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "tools/cli.h"
#include "tools/train_options.h"

namespace ebb {

struct FlagPath {
  std::string_view flag;
  std::string path;  ///< empty: not given
  /// Of an output that replaces an existing file: the first bytes of such a file. A file that
  /// begins otherwise is not an earlier output and is refused.
  std::string_view begins = {};
  bool is_data = false;  ///< of an input: a later run reads every file that is new in this folder
};

// The first bytes of outputs.
inline constexpr std::string_view kNpyBegins = "\x93NUMPY";
inline constexpr std::string_view kHtmlBegins = "<!";

/// Refuses an output that is an input or another output, however it is spelled. In a folder that is
/// an input, a file that the input may contain is refused; in a folder of data that is every file,
/// because a later run would read it. Devices and pipes may be given twice.
void refuse_same_files(const std::vector<FlagPath>& inputs, const std::vector<FlagPath>& outputs);

/// The paths that only one command has.
struct MorePaths {
  std::vector<FlagPath> inputs = {}, outputs = {};
};
/// The file of --config, which is an input.
FlagPath config_path(const CommandLine& line);
/// Checks the paths of a run.
void refuse_same_files(const TrainOptions& options, const MorePaths& more);

}  // namespace ebb
