#include "tools/command_flags.h"

#include <algorithm>
#include <cctype>
#include <string_view>

namespace ebb {
namespace {

bool stands_for_itself(std::string_view word) {
  return !word.empty() && std::ranges::all_of(word, [](unsigned char c) {
    return std::islower(c) || std::isdigit(c) || c == '-';
  });
}

}  // namespace

void read_value(Flag& flag) {
  std::string_view rest = flag.value;
  rest = rest.substr(0, rest.find(' '));
  while (!rest.empty()) {
    const size_t bar = rest.find('|');
    const std::string_view word = rest.substr(0, bar);
    rest = bar == std::string_view::npos ? "" : rest.substr(bar + 1);
    if (stands_for_itself(word)) flag.choices.emplace_back(word);
    for (const std::string_view place : {"FILE", "DIR", "PATH"}) {
      if (word.find(place) != std::string_view::npos) flag.file = true;
    }
  }
}

}  // namespace ebb
