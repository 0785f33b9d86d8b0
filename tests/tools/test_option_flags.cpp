// The flags that stand for options in messages of the library.
#include <gtest/gtest.h>

#include "tools/option_flags.h"

namespace ebb {
namespace {

TEST(OptionFlags, ReplaceOptionsAndNothingElse) {
  EXPECT_EQ(with_flags("lower `device_memory`, or `chunk_bytes` 16 MiB"),
            "lower --device-memory, or --chunk-size 16 MiB");
  EXPECT_EQ(with_flags("run `hf download` with `token_type` u16"),
            "run `hf download` with --token-type u16");
  EXPECT_EQ(with_flags("no options"), "no options");
  EXPECT_EQ(with_flags("a ` alone, then `dtype` fp32"), "a ` alone, then --dtype fp32");
  EXPECT_EQ(with_flags("ends with `dtype"), "ends with `dtype");
}

}  // namespace
}  // namespace ebb
