// Repeats a measurement that a busy machine may disturb. One undisturbed try is enough.
#pragma once

namespace ebb {

/// Whether one of at most ten tries returned true.
template <class Try>
bool seen_once(const Try& attempt) {
  constexpr int kTries = 10;
  for (int i = 0; i < kTries; ++i) {
    if (attempt()) return true;
  }
  return false;
}

}  // namespace ebb
