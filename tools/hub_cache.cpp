#include "tools/hub_cache.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <string_view>
#include <system_error>
#include <vector>

#include "device/errors.h"
#include "io/foreign_content.h"
#include "io/input_file.h"
#include "tools/flag_values.h"

namespace ebb {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kNameCharacters =
    "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_";

/// The folder of a model in the cache is named by it and the id.
const std::string kModelPrefix = "models--";

std::string variable(const std::string& name) {
  const char* value = std::getenv(name.c_str());
  return value == nullptr ? "" : value;
}

/// Replaces $NAME and ${NAME} by the variables, as os.path.expandvars of Python: names that are not
/// set stay.
std::string expand_variables(const std::string& text) {
  std::string result;
  for (size_t at = 0; at < text.size();) {
    const bool in_braces = text.compare(at, 2, "${") == 0;
    const size_t first = at + (in_braces ? 2 : 1);
    const size_t last = text[at] != '$' ? std::string::npos
                        : in_braces
                            ? text.find('}', first)
                            : std::min(text.find_first_not_of(kNameCharacters, first), text.size());
    const std::string name = last == std::string::npos ? "" : text.substr(first, last - first);
    if (name.empty() || std::getenv(name.c_str()) == nullptr) {
      result += text[at++];
      continue;
    }
    result += variable(name);
    at = last + (in_braces ? 1 : 0);
  }
  return result;
}

/// The path in a variable; empty if the variable is not set, or empty.
fs::path path_in(const char* name) {
  const std::string text = variable(name);
  if (text.empty()) return {};
  return expand_variables(path_value(name, text, std::getenv("HOME")));
}

fs::path hub_cache() {
  for (const char* name : {"HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE"}) {
    if (const fs::path cache = path_in(name); !cache.empty()) return cache;
  }
  if (const fs::path home = path_in("HF_HOME"); !home.empty()) return home / "hub";
  const fs::path cache = path_in("XDG_CACHE_HOME");
  return (cache.empty() ? fs::path(variable("HOME")) / ".cache" : cache) / "huggingface" / "hub";
}

/// The content of a file up to the first white space; empty if there is no file.
std::string first_word(const fs::path& path) {
  std::string word;
  std::ifstream(path) >> word;
  return word;
}

/// The sorted paths of the snapshots of a model in the cache. Throws ConfigError if they are all
/// broken links.
std::vector<std::string> snapshots_of(const fs::path& model) {
  std::error_code error;
  std::vector<std::string> snapshots, others;
  for (const auto& entry : fs::directory_iterator(model / "snapshots", error)) {
    (entry.is_directory(error) ? snapshots : others).push_back(entry.path().string());
  }
  if (snapshots.empty()) std::ranges::for_each(others, refuse_broken_link);
  std::sort(snapshots.begin(), snapshots.end());
  return snapshots;
}

/// Why the branch names no snapshot.
std::string what_is_wrong(const fs::path& branch, const std::string& revision) {
  std::error_code error;
  if (!revision.empty()) {
    return fmt::format("'{}' names the snapshot '{}', which does not exist", branch.string(),
                       revision);
  }
  const char* what = !is_entry(branch.string())        ? "does not exist"
                     : fs::is_directory(branch, error) ? "is a folder and not a file"
                                                       : "names no snapshot";
  return fmt::format("'{}' {}, and there are several snapshots", branch.string(), what);
}

}  // namespace

bool is_hub_id(const std::string& name) {
  const std::string others = "-./";
  return name.find_first_not_of(std::string(kNameCharacters) + others) == std::string::npos &&
         std::ranges::count(name, '/') <= 1 && !name.empty() &&
         others.find(name.front()) == std::string::npos &&
         others.find(name.back()) == std::string::npos;
}

fs::path cached_model(const std::string& id) {
  std::string name = id;
  for (size_t at = 0; (at = name.find('/', at)) != std::string::npos;) name.replace(at, 1, "--");
  return hub_cache() / (kModelPrefix + name);
}

std::vector<std::string> cached_ids() {
  std::vector<std::string> ids;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(hub_cache(), error)) {
    const std::string folder = entry.path().filename().string();
    if (!folder.starts_with(kModelPrefix)) continue;
    const std::string name = folder.substr(kModelPrefix.size());
    const size_t at = name.find("--");
    ids.push_back(at == std::string::npos
                      ? name
                      : fmt::format("{}/{}", name.substr(0, at), name.substr(at + 2)));
  }
  std::ranges::sort(ids);
  return ids;
}

std::optional<std::string> find_snapshot(const std::string& name, const fs::path& model) {
  const fs::path branch = model / "refs" / "main";
  const std::string revision = first_word(branch);
  const std::string wanted = (model / "snapshots" / revision).string();
  if (!revision.empty()) refuse_broken_link(wanted);
  const std::vector<std::string> snapshots = snapshots_of(model);
  if (!revision.empty() && std::ranges::find(snapshots, wanted) != snapshots.end()) return wanted;
  if (snapshots.empty()) return std::nullopt;
  if (revision.empty() && snapshots.size() == 1) return snapshots.front();
  throw ConfigError(fmt::format("--model '{}': {}; give the folder of a snapshot: '{}'", name,
                                what_is_wrong(branch, revision), fmt::join(snapshots, "', '")));
}

}  // namespace ebb
