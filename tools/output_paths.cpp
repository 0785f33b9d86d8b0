#include "tools/output_paths.h"

#include <fmt/format.h>

#include <filesystem>
#include <system_error>

#include "device/errors.h"

namespace ebb {
namespace {

namespace fs = std::filesystem;

bool is_same_file(const std::string& a, const std::string& b) {
  std::error_code error;
  const fs::file_status status = fs::status(a, error);
  if (fs::exists(status)) {
    if (!fs::is_regular_file(status) && !fs::is_directory(status)) return false;
    return fs::equivalent(a, b, error) && !error;
  }
  const fs::path whole_a = fs::weakly_canonical(a, error);
  if (error) return false;
  const fs::path whole_b = fs::weakly_canonical(b, error);
  return !error && whole_a == whole_b;
}

}  // namespace

void refuse_same_files(const std::vector<FlagPath>& inputs, const std::vector<FlagPath>& outputs) {
  std::vector<FlagPath> others = inputs;
  for (const FlagPath& output : outputs) {
    if (output.path.empty()) continue;
    for (const FlagPath& other : others) {
      if (other.path.empty() || !is_same_file(output.path, other.path)) continue;
      throw ConfigError(
          fmt::format("{} '{}' would overwrite {} '{}': they are the same file; give another path",
                      output.flag, output.path, other.flag, other.path));
    }
    others.push_back(output);
  }
}

void refuse_same_files(const TrainOptions& o, const std::vector<FlagPath>& more_outputs) {
  std::vector<FlagPath> inputs = {{"--labels", o.labels},
                                  {"--documents", o.documents},
                                  {"--eval-labels", o.eval_labels},
                                  {"--eval-documents", o.eval_documents}};
  for (const std::string& path : o.data) inputs.push_back({"--data", path});
  for (const std::string& path : o.eval_data) inputs.push_back({"--eval-data", path});
  std::vector<FlagPath> outputs = {{"--log", o.log}, {"--trace", o.trace}};
  outputs.insert(outputs.end(), more_outputs.begin(), more_outputs.end());
  refuse_same_files(inputs, outputs);
}

}  // namespace ebb
