#include <gtest/gtest.h>
#include <unistd.h>

#include <cerrno>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>
#include <string>

#include "device/errors.h"
#include "io/json_text.h"
#include "tests/file_size_limit.h"
#include "tests/tools/run_ebb.h"
#include "tools/run_log.h"
#include "tools/set_aside.h"

namespace ebb {
namespace {

namespace fs = std::filesystem;

constexpr const char* kId = "00112233445566aa";

StepRecord some_step() {
  return {.step = 3,
          .epoch = 1,
          .run_id = kId,
          .loss = 0.1,
          .grad_norm = std::nan(""),
          .learning_rate = 3e-4,
          .tokens_seen = 6144,
          .step_seconds = 1.0 / 3,
          .tokens_per_second = 2};
}

TEST(RunLog, StepsHaveThePromisedFieldsInOrder) {
  EXPECT_EQ(to_json(some_step()),
            R"({"step": 3, "epoch": 1, "run_id": "00112233445566aa", )"
            R"("loss": 0.10000000000000001, "grad_norm": null, )"
            R"("learning_rate": 0.00029999999999999997, "tokens_seen": 6144, )"
            R"("step_seconds": 0.33333333333333331, "tokens_per_second": 2})");
  StepRecord full = some_step();
  full.tflops = full.bound_seconds = full.bound_share = full.stall_seconds = 0.5;
  full.eval_loss = std::numeric_limits<double>::infinity();
  full.bound_by = "load";
  full.speculated_chunks = 5;
  full.rolled_back_chunks = 2;
  full.inexact = "--update delayed";
  full.loaded_bytes = full.stored_bytes = full.device_peak_bytes = full.host_bytes = 7;
  EXPECT_TRUE(to_json(full).ends_with(
      R"("tflops": 0.5, "bound_seconds": 0.5, "bound_by": "load", "bound_share": 0.5, )"
      R"("stall_seconds": 0.5, "loaded_bytes": 7, "stored_bytes": 7, "device_peak_bytes": 7, )"
      R"("host_bytes": 7, "speculated_chunks": 5, "rolled_back_chunks": 2, )"
      R"("inexact": "--update delayed", "eval_loss": null})"))
      << to_json(full);
}

TEST(RunLog, StepsInFp16HaveALossScale) {
  StepRecord record = some_step();
  record.loss_scale = 32768;
  record.skipped_steps = 1;
  EXPECT_NE(to_json(record).find(
                R"("grad_norm": null, "loss_scale": 32768, "skipped_steps": 1, "learning_rate")"),
            std::string::npos)
      << to_json(record);
}

TEST(RunLog, NumbersAreReadBackWithTheSameBits) {
  for (const double value : {0.1, 1.0 / 3, 5e-324, 1.7976931348623157e308, -0.0, 3.0}) {
    StepRecord record = some_step();
    record.loss = value;
    const auto parsed = parse_json(to_json(record));
    EXPECT_EQ(parsed["loss"].get<double>(), value);
  }
}

TEST(RunLog, TheLastLineSaysHowItEnded) {
  EXPECT_EQ(
      to_json(EndRecord{.steps = 5,
                        .run_id = kId,
                        .state_hash = 0xabc,
                        .peak_rss_bytes = 4096,
                        .parameters = 12}),
      R"({"end": true, "steps": 5, "run_id": "00112233445566aa", "state_hash": "0000000000000abc", )"
      R"("peak_rss_bytes": 4096, "parameters": 12})");
}

TEST(RunLog, WritesWholeLinesAndKeepsTheOldFile) {
  const std::string path =
      (fs::temp_directory_path() / ("ebb-log-" + std::to_string(::getpid()))).string();
  std::ofstream(path) << std::string(10'000, 'x');
  {
    RunLog log(path);
    EXPECT_EQ(content_of(path), std::string(10'000, 'x')) << "the log has not begun yet";
    EXPECT_EQ(log.begin({}),
              (std::vector<std::string>{renamed_text(path, fs::canonical(path).string() + ".1")}));
    EXPECT_EQ(content_of(path), "");
    EXPECT_EQ(content_of(path + ".1"), std::string(10'000, 'x'));
    log.write(some_step());
    EXPECT_EQ(content_of(path), to_json(some_step()) + "\n");
    log.write(EndRecord{});
    EXPECT_EQ(content_of(path), to_json(some_step()) + "\n" + to_json(EndRecord{}) + "\n");
  }
  RunLog second(path);
  EXPECT_TRUE(second.begin({.run_id = kId, .step = 2})[0].ends_with(".2'"))
      << "a log with step 3 is not the log of a run at step 2";
  for (const char* end : {"", ".1", ".2"}) fs::remove(path + end);
}

TEST(RunLog, ContinuesAfterAStepAndCutsLaterLines) {
  const std::string path =
      (fs::temp_directory_path() / ("ebb-cut-" + std::to_string(::getpid()))).string();
  const auto line = [](uint64_t step) {
    StepRecord record = some_step();
    record.step = step;
    return to_json(record) + "\n";
  };
  const std::string three = line(1) + line(2) + line(3);
  const std::string ends = to_json(EndRecord{}) + "\n";
  const std::string torn = line(4).substr(0, 20);
  const auto cut = [&](const std::string& content, uint64_t last_step, bool has_notes = false) {
    std::ofstream(path) << content;
    RunLog log(path);
    log.begin({.run_id = kId, .step = last_step});
    EXPECT_EQ(content_of(path + ".1"), content_of(path).empty() || has_notes ? content : "");
    fs::remove(path + ".1");
    const std::string kept = content_of(path);
    log.write(some_step());
    log.sync();
    EXPECT_EQ(content_of(path), kept + line(3));
    return kept;
  };
  EXPECT_EQ(cut(three, 3), three);
  EXPECT_EQ(cut(three, 2), line(1) + line(2));
  EXPECT_EQ(cut(three + ends, 3), three);
  EXPECT_EQ(cut(three + torn, 9), three);
  EXPECT_EQ(cut(three + std::string(4096, ' '), 9), three);
  EXPECT_EQ(cut(three + "{}\n" + line(4), 9), three + "{}\n" + line(4));
  EXPECT_EQ(cut(three + "{}\n" + line(4), 3, true), three) << "the note is in the old file";
  EXPECT_EQ(cut("# note\n\n" + three + ends + line(4) + ends, 4),
            "# note\n\n" + three + ends + line(4));
  EXPECT_EQ(cut("", 9), "");
  EXPECT_EQ(cut(three.substr(0, 5), 9), "");
  fs::remove(path);
}

class RunLogFile : public testing::Test {
 protected:
  void SetUp() override { fs::create_directories(folder_); }
  void TearDown() override { fs::remove_all(folder_); }

  static std::string line(uint64_t step, const std::string& id = kId) {
    StepRecord record = some_step();
    record.step = step;
    record.run_id = id;
    record.tokens_seen = 100 * step;
    std::string text = to_json(record) + "\n";
    if (id.empty()) text.erase(text.find("\"run_id\": \"\", "), 14);  // an old log
    return text;
  }
  LogOwner owner(const std::string& content, const LoggedRun& run) const {
    std::ofstream(path_) << content;
    return owner_of_log(path_, run);
  }

  const fs::path folder_ = fs::temp_directory_path() / ("ebb-logs-" + std::to_string(::getpid()));
  const std::string path_ = (folder_ / "log.jsonl").string();
};

TEST_F(RunLogFile, IsOursIfItsLinesHaveTheIdOfTheRun) {
  const LoggedRun run{.run_id = kId, .step = 2, .tokens_seen = 200};
  const std::string other = "ffffffffffffffff", end = to_json(EndRecord{.run_id = kId}) + "\n";
  EXPECT_EQ(owner_of_log(path_, run), LogOwner::Nobody);
  EXPECT_EQ(owner_of_log("/dev/null", run), LogOwner::Nobody);
  EXPECT_EQ(owner("", run), LogOwner::Nobody);
  EXPECT_EQ(owner(line(1) + line(2) + line(3) + end, run), LogOwner::Ours);
  EXPECT_EQ(owner(line(1), run), LogOwner::Ours) << "the line of step 2 may be lost";
  EXPECT_EQ(owner(line(1) + line(2) + line(3).substr(0, 30), run), LogOwner::Ours);
  EXPECT_EQ(owner(line(1, other) + line(2, other), run), LogOwner::Another);
  EXPECT_EQ(owner(line(1) + line(2) + line(3, other), run), LogOwner::Another);
  EXPECT_EQ(owner("precious", run), LogOwner::Another);
  EXPECT_EQ(owner("{}\n[]\n{\"step\": \"2\"}\n{\"step\": 1e999}\n", run), LogOwner::Another);
}

TEST_F(RunLogFile, WithoutIdsIsOursIfItsLastStepFits) {
  const LoggedRun run{.run_id = kId, .step = 2, .tokens_seen = 200};
  EXPECT_EQ(owner(line(1, "") + line(2, "") + line(3, ""), run), LogOwner::Ours);
  EXPECT_EQ(owner(line(1, "") + line(2, "") + line(3), run), LogOwner::Ours) << "resumed once";
  EXPECT_EQ(owner(line(1, ""), run), LogOwner::Another);
  EXPECT_EQ(owner(line(1, "") + line(2, ""), {.run_id = kId, .step = 2, .tokens_seen = 201}),
            LogOwner::Another);
}

TEST_F(RunLogFile, GetsTheLineThatWasNotWritten) {
  const std::string two = line(2), stored = two.substr(0, two.size() - 1);
  const auto begin = [&](const std::string& content, uint64_t step) {
    std::ofstream(path_) << content;
    RunLog log(path_);
    log.begin({.run_id = kId, .step = step, .last_line = stored});
    return content_of(path_);
  };
  EXPECT_EQ(begin(line(1), 2), line(1) + two);
  EXPECT_EQ(begin(line(1) + two.substr(0, 40), 2), line(1) + two);
  EXPECT_EQ(begin(line(1) + two + line(3), 2), line(1) + two);
}

TEST_F(RunLogFile, ReportsStepsWithoutLines) {
  const auto notices = [&](const std::string& content, uint64_t step) {
    std::ofstream(path_) << content;
    RunLog log(path_);
    const auto said = log.begin({.run_id = kId, .step = step, .last_line = "{}"});
    return said.empty() ? "" : said[0];
  };
  EXPECT_EQ(notices(line(1) + line(2) + line(3), 3), "");
  EXPECT_EQ(notices(line(3) + line(4), 4), "") << "the log began with step 3";
  EXPECT_EQ(notices(line(1) + line(2), 3), "") << "the checkpoint has the line";
  EXPECT_TRUE(notices(line(1) + line(2), 4).ends_with("no line of step 3, and perhaps of more"));
  EXPECT_TRUE(notices(line(1) + line(3), 3).ends_with("no line of step 2, and perhaps of more"));
}

TEST_F(RunLogFile, IsWrittenByOneRunAtATime) {
  RunLog first(path_);
  const auto refused = [&] {
    try {
      RunLog second(path_);
    } catch (const ConfigError& error) {
      return std::string(error.what()).find("another run writes to it now") != std::string::npos;
    }
    return false;
  };
  EXPECT_TRUE(refused());
  first.write(some_step());
  first.begin({});  // renames the old file
  EXPECT_TRUE(refused());
  RunLog old(path_ + ".1");
}

int error_number_of(const std::string& path) {
  try {
    const RunLog log(path);
  } catch (const IoError& error) {
    EXPECT_EQ(error.path, path);
    return error.error_number;
  }
  return 0;
}

TEST(RunLog, AFileThatCannotBeWrittenIsFoundWhenItIsOpened) {
  EXPECT_EQ(error_number_of("/nonexistent-folder/run.jsonl"), ENOENT);
  EXPECT_EQ(error_number_of("/tmp"), EISDIR);
  EXPECT_EQ(error_number_of("/dev/full"), ENOSPC);
  EXPECT_EQ(error_number_of("/dev/null"), 0);
}

TEST(RunLog, ADiskThatFillsUpLaterIsAnError) {
  const std::string path =
      (fs::temp_directory_path() / ("ebb-full-" + std::to_string(::getpid()))).string();
  {
    RunLog log(path);
    const test::FileSizeLimit limit(1000);
    const auto write_much = [&log] {
      for (int i = 0; i < 100; ++i) log.write(some_step());
    };
    EXPECT_THROW(write_much(), IoError);
  }
  fs::remove(path);
}

}  // namespace
}  // namespace ebb
