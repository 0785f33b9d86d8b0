// Returns the error that a function must throw.
#pragma once

#include <stdexcept>

namespace ebb::test {

template <class E, class F>
E error_of(const F& body) {
  try {
    body();
  } catch (const E& error) {
    return error;
  }
  throw std::runtime_error("no error of the expected type");
}

}  // namespace ebb::test
