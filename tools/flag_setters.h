// Setters for the declarations of flags (cli.h). Each checks the text of a flag (flag_values.h) and
// writes its value to `target`, which must outlive the parsing.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "tools/cli.h"
#include "tools/flag_values.h"

namespace ebb::setters {

template <class T>
Setter whole(T& target, uint64_t least, uint64_t most = INT64_MAX) {
  return [&target, least, most](std::string_view flag, std::string_view text) {
    target = static_cast<T>(whole_value(flag, text, least, most));
  };
}

template <class T>
Setter real(T& target, RealRange range) {
  return [&target, range](std::string_view flag, std::string_view text) {
    target = real_value(flag, text, range);
  };
}

template <class T>
Setter size(T& target) {
  return
      [&target](std::string_view flag, std::string_view text) { target = size_value(flag, text); };
}

template <class Target, class T, size_t N>
Setter choice(Target& target, const Choice<T> (&choices)[N]) {
  return [&target, &choices](std::string_view flag, std::string_view text) {
    target = choice_value<T>(flag, text, choices);
  };
}

template <class T>
Setter text(T& target) {
  return [&target](std::string_view, std::string_view value) { target = std::string(value); };
}

/// Refuses an empty path, which usually comes from a shell variable that is not set.
inline Setter path(std::string& target) {
  return [&target](std::string_view flag, std::string_view text) {
    if (text.empty()) throw_bad_value(flag, text, "the path of a file");
    target = std::string(text);
  };
}

}  // namespace ebb::setters
