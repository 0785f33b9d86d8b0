// Returns the error that a function must throw, and checks what errors and outputs say.
#pragma once

#include <gtest/gtest.h>

#include <exception>
#include <stdexcept>
#include <string>
#include <string_view>

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

inline testing::AssertionResult says(std::string_view text, std::string_view part) {
  if (text.find(part) != text.npos) return testing::AssertionSuccess();
  return testing::AssertionFailure() << "'" << part << "' is not in:\n" << text;
}
inline testing::AssertionResult says(const std::exception& error, std::string_view part) {
  return says(error.what(), part);
}

}  // namespace ebb::test

/// For gtest: expects that a text, or the message of an error, contains `part`.
#define EXPECT_SAYS(said, part) EXPECT_TRUE(::ebb::test::says(said, part))
