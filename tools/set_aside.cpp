#include "tools/set_aside.h"

#include <fmt/format.h>

#include <filesystem>
#include <system_error>

#include "device/errors.h"
#include "io/input_file.h"

namespace ebb {

namespace fs = std::filesystem;

std::optional<std::string> set_aside(const std::string& path) {
  std::error_code error, ignored;
  if (!fs::is_regular_file(path, ignored) || fs::file_size(path, ignored) == 0) return std::nullopt;
  const std::string file = fs::canonical(path, error).string();  // a symbolic link stays a link
  const auto numbered = [&](int i) { return fmt::format("{}.{}", file, i); };
  int i = 1;
  while (is_entry(numbered(i))) ++i;
  if (!error) fs::rename(file, numbered(i), error);
  if (error)
    throw IoError("cannot rename the old file, so that a new one can have its name", path,
                  error.value());
  return numbered(i);
}

std::string renamed_text(const std::string& path, const std::string& aside) {
  return fmt::format("the old file '{}' is renamed to '{}'", path, aside);
}

}  // namespace ebb
