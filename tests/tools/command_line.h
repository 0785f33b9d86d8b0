// A fixture that runs the built program in a temporary folder, with a text file and a log.
#pragma once

#include <gtest/gtest.h>

#include <chrono>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "io/json_text.h"
#include "tests/tools/run_ebb.h"

namespace ebb {

inline constexpr const char* kToy = "toy-bytes";

inline std::string some_text(size_t bytes) {
  std::string text;
  for (int i = 0; text.size() < bytes; ++i) {
    text += "line " + std::to_string(i * i % 997) + ": the quick brown fox\n";
  }
  text.resize(bytes);
  return text;
}

class CommandLineTest : public testing::Test {
 protected:
  Outcome run(const Arguments& arguments) const { return run_ebb(arguments, folder_.path()); }

  /// Returns the arguments of a small training run, followed by `more`.
  Arguments train(const Arguments& more = {}) const {
    Arguments arguments = {"train", "--preset",     kToy,     "--data",       text_, "--device",
                           "host",  "--chunk-size", "256KiB", "--seq-length", "32",  "--threads",
                           "2"};
    return arguments + more;
  }
  Outcome run_train(const Arguments& more) const { return run(train(more)); }

  std::vector<nlohmann::json> log_lines() const {
    std::vector<nlohmann::json> lines;
    std::istringstream text(content_of(log_));
    for (std::string line; std::getline(text, line);) lines.push_back(parse_json(line));
    return lines;
  }

  void wait_for_log() const {
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(60);
    while (content_of(log_).find('\n') == std::string::npos &&
           std::chrono::steady_clock::now() < deadline) {
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
  }

  TemporaryFolder folder_;
  std::string text_ = folder_.write("text.txt", some_text(20'000));
  std::string log_ = (folder_.path() / "log.jsonl").string();
};

}  // namespace ebb
