// Text that ends before a stop text, which may be spread over parts.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <string>

#include "tools/stop_text.h"

namespace ebb {
namespace {

/// What is written of a text that comes in parts of `part` bytes. Expects that nothing is written
/// late: what is held back is only the beginning of the stop text.
std::string written(const std::string& text, const std::string& stop, size_t part) {
  StopText output(stop);
  std::string all;
  for (size_t at = 0; at < text.size() && !output.is_found(); at += part) {
    const size_t end = std::min(at + part, text.size());
    all += output.add(text.substr(at, end - at));
    const std::string held = text.substr(all.size(), end - all.size());
    if (!output.is_found()) {
      EXPECT_TRUE(held.size() < std::max<size_t>(stop.size(), 1) && stop.starts_with(held)) << held;
    }
  }
  EXPECT_EQ(output.is_found(), !stop.empty() && text.find(stop) != std::string::npos);
  return all + output.rest();
}

TEST(StopTextTest, EndsTheTextBeforeItsFirstOccurrence) {
  for (size_t part = 1; part < 12; ++part) {
    EXPECT_EQ(written("one. Q: two Q:", "Q:", part), "one. ") << part;
    EXPECT_EQ(written("aaab", "aab", part), "a") << part;
    EXPECT_EQ(written("ababac, abac", "abac", part), "ab") << part;
    EXPECT_EQ(written("Q:", "Q:", part), "") << part;
  }
}

TEST(StopTextTest, KeepsATextWithoutIt) {
  for (size_t part = 1; part < 12; ++part) {
    EXPECT_EQ(written("one Q and QQ", "Q:", part), "one Q and QQ") << part;
    EXPECT_EQ(written("one Q", "", part), "one Q") << part;
    EXPECT_EQ(written("aba", "abac", part), "aba") << part;
  }
}

TEST(StopTextTest, NothingFollowsIt) {
  StopText output(".");
  EXPECT_EQ(output.add("one. two"), "one");
  EXPECT_EQ(output.add("three"), "");
  EXPECT_TRUE(output.is_found());
  EXPECT_EQ(output.rest(), "");
}

}  // namespace
}  // namespace ebb
