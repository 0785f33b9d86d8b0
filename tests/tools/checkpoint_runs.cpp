#include "tests/tools/checkpoint_runs.h"

#include <algorithm>
#include <filesystem>
#include <sstream>

#include "io/json_text.h"

namespace ebb::test {
namespace {

constexpr int kSamples = 11 * 2;  // 32 tokens each; 2.75 steps per epoch

std::vector<nlohmann::json> lines_of(const std::string& text) {
  std::vector<nlohmann::json> lines;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) {
    const auto json = parse_json(line);
    nlohmann::json kept;
    for (const char* name :
         {"step", "epoch", "loss", "grad_norm", "loss_scale", "skipped_steps", "learning_rate",
          "tokens_seen", "inexact", "eval_loss", "end", "steps", "state_hash"}) {
      if (json.contains(name)) kept[name] = json[name];
    }
    lines.push_back(kept);
  }
  return lines;
}

}  // namespace

void CheckpointRuns::SetUp() {
  std::string text;
  for (int i = 0; text.size() < kSamples * 32 + 1; ++i)
    text += std::to_string(i * i % 997) + " fox ";
  text.resize(kSamples * 32 + 1);
  text_ = folder_.write("text.txt", text);
}

Arguments CheckpointRuns::train(const Arguments& more) const {
  const std::pair<const char*, std::string> defaults[] = {
      {"--preset", "toy-bytes"}, {"--data", text_}, {"--device", "host"},
      {"--seq-length", "32"},    {"--steps", "8"},  {"--gradient-accumulation", "2"},
      {"--threads", "2"},        {"--log", log_},   {"--chunk-size", "256KiB"}};
  Arguments arguments = {"train"};
  for (const auto& [flag, value] : defaults) {
    if (std::ranges::find(more, flag) == more.end()) arguments += {flag, value};
  }
  return arguments + more;
}

Outcome CheckpointRuns::succeed(const Arguments& arguments) const {
  Outcome outcome = run(arguments);
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  return outcome;
}

std::vector<std::string> CheckpointRuns::names_saved() const {
  std::vector<std::string> names;
  std::error_code none;
  for (const auto& entry : std::filesystem::directory_iterator(save(), none)) {
    names.push_back(entry.path().filename().string());
  }
  std::ranges::sort(names);
  return names;
}

std::vector<nlohmann::json> CheckpointRuns::log() const { return lines_of(content_of(log_)); }

std::vector<nlohmann::json> CheckpointRuns::whole() const {
  const std::string other = path("whole.jsonl");
  if (content_of(other).empty()) succeed(train({"--log", other}));
  return lines_of(content_of(other));
}

}  // namespace ebb::test
