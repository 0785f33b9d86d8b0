// `ebb eval` and `ebb generate` where they do not fit.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <iterator>
#include <sstream>

#include "tests/tools/run_ebb.h"

namespace ebb {
namespace {

using Arguments = std::vector<std::string>;

class InferenceLimits : public testing::Test {
 protected:
  TemporaryFolder folder_;
};

/// The changes that an error names, each with its value.
std::vector<Arguments> changes_in(const std::string& text) {
  std::vector<Arguments> changes;
  const size_t at = text.find("changes after each of which it fits");
  std::istringstream lines(text.substr(std::min(at, text.size())));
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(line);
    Arguments change{std::istream_iterator<std::string>(words), {}};
    if (!change.empty() && change[0].starts_with("--")) changes.push_back(change);
  }
  return changes;
}

TEST_F(InferenceLimits, WhatDoesNotFitIsToldChangesAfterWhichItDoes) {
  const std::string text = folder_.write("text", std::string(400, 'a'));
  const Arguments preset = {"--preset", "gpt-6x384-bytes"};
  const auto with = [&](const std::string& command, const Arguments& more) {
    Arguments all = {command};
    all.insert(all.end(), preset.begin(), preset.end());
    Arguments given;  // run() has flags of its own, and a flag is given once
    if (command == "eval") given = {"--data", text, "--seq-length", "64"};
    if (command == "generate") given = {"--prompt", "Once ", "--max-tokens", "4"};
    for (size_t i = 0; i < given.size(); i += 2) {
      const bool again = std::ranges::find(more, given[i]) != more.end();
      if (!again) all.insert(all.end(), {given[i], given[i + 1]});
    }
    all.insert(all.end(), {"--threads", "1", "--device", "host"});
    all.insert(all.end(), more.begin(), more.end());
    return run_ebb(all, folder_.path());
  };
  const auto names_bf16 = [](const std::vector<Arguments>& changes) {
    return std::ranges::find(changes, Arguments{"--dtype", "bf16"}) != changes.end();
  };
  for (const char* command : {"eval", "generate"}) {
    for (const Arguments& tight :
         {Arguments{"--device-memory", "8MiB"}, Arguments{"--host-memory", "30MiB"}}) {
      for (const char* dtype : {"fp32", "bf16", "fp16"}) {
        Arguments flags = tight;
        flags.insert(flags.end(), {"--dtype", dtype});
        const Outcome refused = with(command, flags);
        if (refused.exit_code == 0) continue;  // 16 bits fit at home
        ASSERT_EQ(refused.exit_code, 3) << refused.err;
        const auto changes = changes_in(refused.err);
        EXPECT_GE(changes.size(), 1u) << refused.err;
        EXPECT_EQ(names_bf16(changes), tight[0] == "--host-memory") << refused.err;
        for (const Arguments& change : changes) {
          Arguments changed = flags;
          for (size_t i = 0; i < change.size(); i += 2) {
            const auto given = std::ranges::find(changed, change[i]);
            if (given == changed.end()) {
              changed.insert(changed.end(), {change[i], change[i + 1]});
            } else {
              given[1] = change[i + 1];
            }
          }
          const Outcome outcome = with(command, changed);
          EXPECT_EQ(outcome.exit_code, 0) << change[0] << " " << change[1] << "\n" << outcome.err;
        }
      }
    }
  }
}

}  // namespace
}  // namespace ebb
