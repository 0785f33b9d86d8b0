#include "io/json_file.h"

#include "device/errors.h"
#include "io/foreign_content.h"
#include "io/mapped_file.h"

namespace ebb {
namespace {

constexpr size_t kMostBytes = size_t{256} << 20;
constexpr int kMostDepth = 100;

template <class Json>
Json parse(const std::string& path) {
  const MappedFile file(path, "JSON");
  const auto bytes = file.bytes();
  if (bytes.size() > kMostBytes) {
    throw FormatError(path, kMostBytes,
                      "JSON of " + format_bytes(bytes.size()) + " exceeds the limit of 256 MiB");
  }
  const char* text = reinterpret_cast<const char*>(bytes.data());
  // The depth is limited, because the destructor of a JSON tree is recursive.
  const auto check_depth = [&path](int depth, typename Json::parse_event_t, Json&) {
    if (depth > kMostDepth) throw FormatError(path, 0, "JSON of more than 100 levels");
    return true;
  };
  try {
    return Json::parse(text, text + bytes.size(), check_depth);
  } catch (const typename Json::parse_error& error) {
    const std::string_view what = foreign_content(bytes);
    throw FormatError(path, error.byte > 0 ? error.byte - 1 : 0,
                      what.empty() ? "this is not JSON from here on"
                                   : "this is not JSON, but " + std::string(what));
  }
}

}  // namespace

nlohmann::json read_json_file(const std::string& path) { return parse<nlohmann::json>(path); }

nlohmann::ordered_json read_ordered_json_file(const std::string& path) {
  return parse<nlohmann::ordered_json>(path);
}

}  // namespace ebb
