#include "chunk/layer_name.h"

#include <algorithm>
#include <cctype>

namespace ebb {

std::string layer_of(std::string_view name) {
  for (size_t begin = 0; begin < name.size();) {
    const size_t end = std::min(name.find('.', begin), name.size());
    const std::string_view part = name.substr(begin, end - begin);
    const auto is_digit = [](unsigned char c) { return std::isdigit(c) != 0; };
    if (!part.empty() && std::ranges::all_of(part, is_digit))
      return std::string(name.substr(0, end));
    begin = end + 1;
  }
  const size_t last = name.rfind('.');
  return std::string(last == std::string_view::npos || last == 0 ? name : name.substr(0, last));
}

std::string layers_of(const Layout& layout, ChunkIndex chunk) {
  const std::span<const Segment> segments = layout.segments(chunk);
  const std::string first = layer_of(layout.parameter(segments.front().parameter).name);
  const std::string last = layer_of(layout.parameter(segments.back().parameter).name);
  return first == last ? first : first + " to " + last;
}

}  // namespace ebb
