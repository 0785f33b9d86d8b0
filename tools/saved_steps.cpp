#include "tools/saved_steps.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <filesystem>

#include "device/errors.h"

namespace ebb {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kPrefix = "step-";

bool is_complete(const fs::path& checkpoint) {
  std::error_code ignored;
  return fs::exists(checkpoint / kTrainingFile, ignored);
}

}  // namespace

std::string checkpoint_name(uint64_t step) { return fmt::format("{}{}", kPrefix, step); }

std::optional<std::pair<uint64_t, std::string_view>> parse_checkpoint_name(std::string_view name) {
  if (!name.starts_with(kPrefix)) return std::nullopt;
  uint64_t step = 0;
  const char* const end = name.data() + name.size();
  const char* const begin = name.data() + kPrefix.size();
  const auto [rest, error] = std::from_chars(begin, end, step);
  if (error != std::errc() || (*begin == '0' && rest - begin > 1)) return std::nullopt;
  return std::pair(step, std::string_view(rest, static_cast<size_t>(end - rest)));
}

bool is_checkpoint_name(std::string_view name) { return name.starts_with(kPrefix); }

std::string checkpoint_path(const std::string& folder, uint64_t step) {
  return (fs::path(folder) / checkpoint_name(step)).string();
}

std::vector<uint64_t> saved_steps(const std::string& folder) {
  std::vector<uint64_t> steps;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(folder, error)) {
    const std::string name = entry.path().filename().string();
    const auto parsed = parse_checkpoint_name(name);
    if (parsed && parsed->second.empty() && is_complete(entry.path())) {
      steps.push_back(parsed->first);
    }
  }
  if (error && error != std::errc::no_such_file_or_directory) {
    throw IoError("cannot read folder of checkpoints", folder, error.value());
  }
  std::ranges::sort(steps);
  return steps;
}

std::optional<std::string> find_checkpoint(const std::string& folder) {
  std::error_code error;
  if (!fs::is_directory(folder, error)) {
    throw InputError("cannot resume from", folder, error ? error.value() : ENOTDIR);
  }
  if (is_complete(folder)) return folder;
  const std::vector<uint64_t> steps = saved_steps(folder);
  if (steps.empty()) return std::nullopt;
  return checkpoint_path(folder, steps.back());
}

}  // namespace ebb
