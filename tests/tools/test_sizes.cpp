#include <gtest/gtest.h>

#include <string>

#include "tools/flag_values.h"
#include "tools/size_parse.h"

namespace ebb {
namespace {

TEST(Sizes, TakeBinaryAndDecimalUnits) {
  EXPECT_EQ(parse_size("256MiB"), size_t{256} << 20);
  EXPECT_EQ(parse_size("16GB"), 16'000'000'000u);
  EXPECT_EQ(parse_size("1.5GiB"), size_t{3} << 29);
  EXPECT_EQ(parse_size("2 KiB"), 2048u);
  EXPECT_EQ(parse_size("3kB"), 3000u);
  EXPECT_EQ(parse_size("1TiB"), size_t{1} << 40);
  EXPECT_EQ(parse_size("7B"), 7u);
  EXPECT_EQ(parse_size("0"), 0u);
}

TEST(Sizes, PlainBytesAreExact) {
  EXPECT_EQ(parse_size("9007199254740993"), 9007199254740993u);  // 2^53 + 1
  EXPECT_EQ(parse_size("9223372036854775807"), 9223372036854775807u);
  EXPECT_EQ(parse_size("9007199254740993 B"), 9007199254740993u);
}

TEST(Sizes, EverythingElseIsRefused) {
  for (const char* text : {"",
                           "MiB",
                           "-1",
                           "-1MiB",
                           "1Gb",
                           "1gib",
                           "1M",
                           "1e9",
                           "nan",
                           "inf",
                           "1MiBx",
                           "1 2",
                           "0x10",
                           "9223372036854775808",
                           "18446744073709551616",
                           "8388608TiB",
                           "1,5GiB",
                           "+1",
                           "8388608.7",
                           "1.5B",
                           "2.0"}) {
    EXPECT_EQ(parse_size(text), std::nullopt) << text;
  }
}

TEST(Sizes, SmallNumbersWithoutAUnitProbablyHaveOne) {
  EXPECT_EQ(size_meant_by("24"), "24GiB");
  EXPECT_EQ(size_meant_by(" 1024"), "1024GiB");
  EXPECT_EQ(size_meant_by("8192"), "8192MiB");
  for (const char* text : {"0", "24B", "1.5", "100000", "24GiB", ""}) {
    EXPECT_EQ(size_meant_by(text), "") << text;
  }
}

TEST(Sizes, AUnitInAnotherSpellingIsUnderstood) {
  EXPECT_EQ(size_meant_by("128G"), "128GiB");
  EXPECT_EQ(size_meant_by("1.5t"), "1.5TiB");
  EXPECT_EQ(size_meant_by("24Mb"), "24MiB");
  EXPECT_EQ(size_meant_by("24 g"), "24GiB");
  for (const char* text : {"24x", "G", "0G", "1.2.3G", "16GB", "24 pages", "24tokens"}) {
    EXPECT_EQ(size_meant_by(text), "") << text;
  }
}

TEST(Sizes, AreAlsoWrittenInGigabytes) {
  EXPECT_EQ(format_gigabytes(128'000'000'000), "128.0 GB");
  EXPECT_EQ(format_gigabytes(size_t{1} << 30), "1.07 GB");
  EXPECT_EQ(format_gigabytes(size_t{1536} * 1'000'000'000), "1536 GB");
}

TEST(Sizes, LinksHaveOneOrTwoRates) {
  const auto both = parse_link("12GB/s");
  ASSERT_TRUE(both);
  EXPECT_EQ(both->load_bytes_per_s, 12e9);
  EXPECT_EQ(both->store_bytes_per_s, 12e9);
  const auto two = parse_link("1.5GiB/s, 500MB/s");
  ASSERT_TRUE(two);
  EXPECT_EQ(two->load_bytes_per_s, 1.5 * 0x1p30);
  EXPECT_EQ(two->store_bytes_per_s, 500e6);
  for (const char* text : {"", "12GB", "12GB/s,", ",1GB/s", "0GB/s", "1GB/s,0B/s",
                           "1GB/s,1GB/s,1GB/s", "-1GB/s", "12Gbit/s"}) {
    EXPECT_FALSE(parse_link(text)) << text;
  }
}

TEST(Sizes, ComputeRatesMayHaveAMemoryRate) {
  const auto one = parse_compute_rates("100TFLOP/s");
  ASSERT_TRUE(one);
  EXPECT_EQ(one->flops_per_s, 100e12);
  EXPECT_EQ(one->bytes_per_s, 0);
  const auto two = parse_compute_rates("1.5PFLOP/s, 3TB/s");
  ASSERT_TRUE(two);
  EXPECT_EQ(two->flops_per_s, 1.5e15);
  EXPECT_EQ(two->bytes_per_s, 3e12);
  for (const auto& [text, rate] :
       {std::pair("2kFLOP/s", 2e3), std::pair("2MFLOP/s", 2e6), std::pair("2 GFLOP/s", 2e9)}) {
    ASSERT_TRUE(parse_compute_rates(text)) << text;
    EXPECT_EQ(parse_compute_rates(text)->flops_per_s, rate) << text;
  }
  for (const char* text :
       {"", "100", "100TFLOP", "100TFLOPS", "100TB/s", "0TFLOP/s", "-1TFLOP/s", "1TFLOP/s,",
        "1TFLOP/s,0B/s", "1TFLOP/s,1TFLOP/s", "nanTFLOP/s", "1tflop/s", "1TFLOP/s,1GB/s,1GB/s"}) {
    EXPECT_FALSE(parse_compute_rates(text)) << text;
  }
}

std::string message_of(void (*body)()) {
  try {
    body();
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "no error";
}

TEST(FlagValues, MessagesNameFlagValueAndWhatIsAllowed) {
  EXPECT_EQ(message_of([] { whole_value("--steps", "-5", 1); }),
            "--steps '-5': allowed is a whole number, at least 1");
  const std::string flag = message_of([] { whole_value("--steps", std::string(1 << 20, '7'), 1); });
  EXPECT_EQ(flag, "--steps '" + std::string(100, '7') +
                      "...': allowed is a whole number from 1 to 9223372036854775807");
  EXPECT_EQ(message_of([] { whole_value("--threads", "9", 1, 8); }),
            "--threads '9': allowed is a whole number from 1 to 8");
  EXPECT_EQ(
      message_of([] { real_value("--beta1", "1", {.most = 0.9999999, .zero_allowed = true}); }),
      "--beta1 '1': allowed is 0, or a number from 1e-30 to 0.9999999");
  EXPECT_EQ(message_of([] { real_value("--lr", "0", {}); }),
            "--lr '0': allowed is a number above 0");
  EXPECT_EQ(message_of([] { real_value("--lr", "1e40", {}); }),
            "--lr '1e40': allowed is a number from 1e-30 to 1e+30");
  EXPECT_EQ(
      message_of([] { size_value("--chunk-size", "0"); }),
      "--chunk-size '0': allowed is a size like 256MiB, 1.5GiB, 16GB or plain bytes, above 0");
  EXPECT_EQ(message_of([] { size_value("--chunk-size", "9000000TiB"); }),
            "--chunk-size '9000000TiB': allowed is a size like 256MiB, 1.5GiB, 16GB or plain "
            "bytes, below 8388608TiB");
  EXPECT_EQ(
      message_of([] { size_value("--device-memory", "24"); }),
      "--device-memory '24': allowed is a size like 256MiB, 1.5GiB, 16GB or plain bytes; this "
      "is 24 bytes: did you mean 24GiB?");
  EXPECT_EQ(message_of([] {
              static constexpr Choice<int> kChoices[] = {{"one", 1}, {"two", 2}};
              choice_value<int>("--order", "three", kChoices);
            }),
            "--order 'three': allowed is one of one, two");
}

TEST(FlagValues, NumbersMustBeWholeTextsAndFinite) {
  for (const char* text : {"", " 1", "1 ", "1.0", "1e3", "18446744073709551616", "abc"}) {
    EXPECT_THROW(whole_value("--steps", text, 0, UINT64_MAX), ConfigError) << text;
  }
  for (const char* text : {"", "nan", "inf", "-1e-300", "1x", "1e31", "1e999", "1e-46", "1e-400"}) {
    EXPECT_THROW(real_value("--lr", text, {}), ConfigError) << text;
  }
  EXPECT_EQ(whole_value("--seed", "18446744073709551615", 0, UINT64_MAX), UINT64_MAX);
  EXPECT_EQ(real_value("--lr", "3e-4", {}), 3e-4);
}

}  // namespace
}  // namespace ebb
