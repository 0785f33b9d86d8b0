#include "device/errors.h"

#include <cstdio>
#include <cstring>

namespace ebb {
namespace {

std::string out_of_memory_text(const std::string& kind, size_t requested, size_t used, size_t limit,
                               const std::string& tag, std::string_view advice) {
  std::string text = "out of " + kind + " memory: need " + format_bytes(requested) + " for " + tag +
                     ", " + format_bytes(limit > used ? limit - used : 0) + " free of " +
                     format_bytes(limit);
  if (!advice.empty()) text.append("; ").append(advice);
  return text;
}

}  // namespace

OutOfMemory::OutOfMemory(std::string kind_, size_t requested_, size_t used_, size_t limit_,
                         std::string tag_, std::string_view advice)
    : Error(out_of_memory_text(kind_, requested_, used_, limit_, tag_, advice)),
      kind(std::move(kind_)),
      requested(requested_),
      used(used_),
      limit(limit_),
      tag(std::move(tag_)) {}

IoError::IoError(std::string_view doing, std::string path_, int error_number_)
    : Error(std::string(doing) + " '" + path_ + "': " + std::strerror(error_number_)),
      path(std::move(path_)),
      error_number(error_number_) {}

FormatError::FormatError(std::string path_, uint64_t offset_, std::string_view what)
    : Error("'" + path_ + "' at byte " + std::to_string(offset_) + ": " + std::string(what)),
      path(std::move(path_)),
      offset(offset_) {}

void throw_logic_error(const char* file, int line, const char* condition, std::string_view detail) {
  throw LogicError(std::string(detail) + " (" + condition + ", " + file + ":" +
                   std::to_string(line) + ")");
}

std::string format_bytes(size_t bytes) {
  static constexpr const char* kUnits[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB"};
  double value = static_cast<double>(bytes);
  int unit = 0;
  while (value >= 1024 && unit < 5) value /= 1024, ++unit;
  char text[32];
  const bool whole = value == static_cast<double>(static_cast<uint64_t>(value));
  std::snprintf(text, sizeof text, whole ? "%.0f %s" : "%.2f %s", value, kUnits[unit]);
  return text;
}

}  // namespace ebb
