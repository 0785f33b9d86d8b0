// The exit code of a benchmark.
#pragma once

#include <fmt/core.h>

#include <cstdio>
#include <exception>

#include "device/errors.h"

namespace ebb::bench {

/// Runs `body` and returns its result. Returns 2 if it throws ConfigError and 1 for other errors,
/// and writes the text of the error to stderr after the benchmark's name.
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
