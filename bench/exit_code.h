// How a benchmark ends.
#pragma once

#include <fmt/core.h>

#include <cstdio>
#include <exception>

#include "device/errors.h"

namespace ebb::bench {

/// What `body` returns; 2 where it throws ConfigError, 1 for another error, whose text goes to
/// stderr after the benchmark's name.
template <class Body>
int exit_code_of(const char* name, const Body& body) {
  try {
    return body();
  } catch (const ConfigError& error) {
    fmt::print(stderr, "{}: {}\n", name, error.what());
    return 2;
  } catch (const std::exception& error) {
    fmt::print(stderr, "{}: {}\n", name, error.what());
    return 1;
  }
}

}  // namespace ebb::bench
