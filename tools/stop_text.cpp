#include "tools/stop_text.h"

#include <algorithm>

namespace ebb {

std::string StopText::add(std::string_view part) {
  if (is_found_) return "";
  held_ += part;
  size_t end = stop_.empty() ? std::string::npos : held_.find(stop_);
  is_found_ = end != std::string::npos;
  if (!is_found_) {
    const std::string_view stop = stop_;
    size_t begun = stop.empty() ? 0 : std::min(held_.size(), stop.size() - 1);
    while (!held_.ends_with(stop.substr(0, begun))) --begun;
    end = held_.size() - begun;
  }
  std::string certain = held_.substr(0, end);
  held_.erase(0, is_found_ ? held_.size() : end);
  return certain;
}

}  // namespace ebb
