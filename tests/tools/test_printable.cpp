// Texts that are safe to print.
#include <gtest/gtest.h>

#include "tools/printable.h"

namespace ebb {
namespace {

TEST(Printable, ReplacesControlCharactersAndWhatIsNotUtf8) {
  EXPECT_EQ(printable("a\tb\nc\x1b[1m \xc3\xbc \xe6\xbc\xa2"),
            "a\\tb\\nc\\x1b[1m \xc3\xbc \xe6\xbc\xa2");
  EXPECT_EQ(printable("a\xff\xc3z"), "a\\xff\\xc3z");
  EXPECT_EQ(printable_lines("a\nb\t"), "a\nb\\t");
  EXPECT_EQ(printable(""), "");
}

TEST(Printable, ReplacesACharacterThatTheEndCuts) {
  EXPECT_EQ(printable("ab\xc3"), "ab\\xc3");
  EXPECT_EQ(printable("ab\xe6\xbc"), "ab\\xe6\\xbc");
}

}  // namespace
}  // namespace ebb
