#include "tools/command_flags.h"

#include <algorithm>

namespace ebb {
namespace {

// At most one flag of each row can be given.
constexpr std::string_view kExclusive[][2] = {{"steps", "epochs"},
                                              {"warmup-steps", "warmup-ratio"},
                                              {"recompute", "gradient-checkpointing"},
                                              {"preset", "model"},
                                              {"eval-data", "eval-split"}};

}  // namespace

bool takes_path(std::string_view placeholder) {
  const std::string_view value = placeholder.substr(0, placeholder.find(' '));  // then the default
  for (const std::string_view word : {"FILE", "DIR", "PATH"}) {
    if (value.find(word) != value.npos) return true;
  }
  return false;
}

bool gives_way(std::string_view name, const std::vector<FlagValue>& given) {
  const auto is_given = [&](std::string_view other) {
    return std::ranges::find(given, other, &FlagValue::name) != given.end();
  };
  return is_given(name) || std::ranges::any_of(kExclusive, [&](const auto& pair) {
           return (name == pair[0] && is_given(pair[1])) || (name == pair[1] && is_given(pair[0]));
         });
}

}  // namespace ebb
