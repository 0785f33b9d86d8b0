#include "tools/nearest_path.h"

#include <algorithm>
#include <system_error>
#include <vector>

#include "tools/nearest_name.h"

namespace ebb {

std::string nearest_path(const std::filesystem::path& path, Among among) {
  const std::filesystem::path folder = path.parent_path();
  std::vector<std::string> names;
  std::error_code error;
  std::error_code ignored;
  std::filesystem::directory_iterator entry(folder.empty() ? "." : folder, error);
  for (; !error && entry != std::filesystem::directory_iterator(); entry.increment(error)) {
    if (among == Among::All || entry->is_directory(ignored)) {
      names.push_back(entry->path().filename().string());
    }
  }
  std::ranges::sort(names);
  const std::string nearest = nearest_name(path.filename().string(), names);
  return nearest.empty() ? "" : (folder / nearest).string();
}

}  // namespace ebb
