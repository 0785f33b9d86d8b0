#include "tools/run_id.h"

#include <fmt/format.h>

#include <algorithm>
#include <random>

namespace ebb {

std::string new_run_id() {
  std::random_device random;
  return fmt::format("{:08x}{:08x}", random(), random());
}

bool is_run_id(std::string_view text) {
  return text.size() == 16 && std::ranges::all_of(text, [](char c) {
           return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f');
         });
}

}  // namespace ebb
