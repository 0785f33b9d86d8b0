#include <gtest/gtest.h>

#include <thread>

#include "comm/thread_ranks.h"
#include "tests/error_of.h"
#include "tools/rank_agreement.h"

namespace ebb::test {
namespace {

TEST(RankAgreement, NamesTheFirstDifference) {
  const RankDescription a = {{"--lr", "0.0003"}, {"--steps", "8"}, {"data", "of 7 tokens"}};
  RankDescription b = a;
  const auto difference = [&] { return first_difference(std::vector{a, a, b}); };
  EXPECT_EQ(difference(), "");
  b["data"] = "of 6 tokens";
  EXPECT_EQ(difference(), "rank 2 has data of 6 tokens, rank 0 has data of 7 tokens");
  b["--lr"] = "0.001";
  EXPECT_EQ(difference(), "rank 2 has --lr 0.001, rank 0 has --lr 0.0003");
  b.erase("--lr");
  EXPECT_EQ(difference(), "rank 2 has no --lr, rank 0 has --lr 0.0003");
  b = a;
  b["--beta1"] = "0.8";
  EXPECT_EQ(difference(), "rank 2 has --beta1 0.8, rank 0 has no --beta1");
}

/// What each of three ranks throws.
std::vector<std::string> errors_of(const std::vector<RankDescription>& descriptions) {
  ThreadRanks ranks(3, {.timeout_s = 30});
  std::vector<std::string> errors(3);
  {
    std::vector<std::jthread> threads;
    for (uint32_t r = 0; r < 3; ++r) {
      threads.emplace_back([&, r] {
        try {
          check_ranks_agree(ranks.rank(r), descriptions[r]);
        } catch (const ConfigError& error) {
          errors[r] = error.what();
          ranks.rank(r).fail(error.what());
        }
      });
    }
  }
  return errors;
}

TEST(RankAgreement, AllRanksThrowTheSame) {
  RankDescription a = {{"--prompt", ""}, {"--steps", "8"}}, b = a, longer = a;
  b["--steps"] = "9";
  longer["--prompt"] = std::string(40000, 'x');  // longer than a piece of an exchange
  EXPECT_EQ(errors_of({a, a, a}), std::vector<std::string>(3, ""));
  const std::vector<std::string> errors = errors_of({a, b, longer});
  EXPECT_SAYS(errors[0], "rank 1 has --steps 9, rank 0 has --steps 8: all ranks of a run need the");
  EXPECT_EQ(errors, std::vector<std::string>(3, errors[0]));
  EXPECT_SAYS(errors_of({a, a, longer})[0], "rank 2 has --prompt xxx");
}

}  // namespace
}  // namespace ebb::test
