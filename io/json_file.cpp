#include "io/json_file.h"

#include <fmt/format.h>

#include "device/errors.h"
#include "io/foreign_content.h"
#include "io/input_file.h"
#include "io/watched_text.h"

namespace ebb {
namespace {

constexpr uint64_t kMostBytes = uint64_t{256} << 20;
constexpr int kMostDepth = 100;

template <class Json>
Json parse(const std::string& path, const std::string& text) {
  // The depth is limited, because the destructor of a JSON tree is recursive.
  const auto check_depth = [&path](int depth, typename Json::parse_event_t, Json&) {
    if (depth > kMostDepth) throw FormatError(path, 0, "JSON of more than 100 levels");
    return true;
  };
  const char* seen = text.data();
  const auto at = [&text, &seen](size_t offset) {
    return WatchedText(text.data() + offset, &seen);
  };
  try {
    Json json = Json::parse(at(0), at(text.size()), check_depth);
    if (json.is_object()) return json;
    throw FormatError(
        path, 0,
        fmt::format("this JSON is of type {}; needed is an object, {{...}}", json.type_name()));
  } catch (const typename Json::parse_error& error) {
    const std::string what = foreign_content(std::as_bytes(std::span(text)));
    throw FormatError(
        path, error.byte > 0 ? error.byte - 1 : 0,
        what.empty() ? "this is not JSON from here on" : "this is not JSON, but " + what);
  } catch (const typename Json::out_of_range&) {
    throw FormatError(path, static_cast<uint64_t>(seen - text.data()),
                      "the number that ends here is out of range; allowed are numbers that fp64 "
                      "can represent, up to 1.8e308");
  }
}

template <class Json>
Json read(const std::string& path) {
  return parse<Json>(path, read_input_file(path, "JSON", kMostBytes));
}

}  // namespace

nlohmann::json read_json_file(const std::string& path) { return read<nlohmann::json>(path); }

nlohmann::ordered_json read_ordered_json_file(const std::string& path) {
  return read<nlohmann::ordered_json>(path);
}

nlohmann::ordered_json read_ordered_json(const std::string& path, const std::string& text) {
  return parse<nlohmann::ordered_json>(path, text);
}

}  // namespace ebb
