#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cerrno>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>

#include "device/errors.h"
#include "io/json_text.h"
#include "tools/run_log.h"

namespace ebb {
namespace {

namespace fs = std::filesystem;

std::string content_of(const std::string& path) {
  std::ostringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str();
}

StepRecord some_step() {
  return {.step = 3,
          .epoch = 1,
          .loss = 0.1,
          .grad_norm = std::nan(""),
          .learning_rate = 3e-4,
          .tokens_seen = 6144,
          .step_seconds = 1.0 / 3,
          .tokens_per_second = 2};
}

TEST(RunLog, StepsHaveThePromisedFieldsInOrder) {
  EXPECT_EQ(to_json(some_step()),
            R"({"step": 3, "epoch": 1, "loss": 0.10000000000000001, "grad_norm": null, )"
            R"("learning_rate": 0.00029999999999999997, "tokens_seen": 6144, )"
            R"("step_seconds": 0.33333333333333331, "tokens_per_second": 2})");
  StepRecord full = some_step();
  full.tflops = full.bound_seconds = full.bound_share = full.stall_seconds = 0.5;
  full.eval_loss = std::numeric_limits<double>::infinity();
  full.bound_by = "load";
  full.speculated_chunks = 5;
  full.rolled_back_chunks = 2;
  full.loaded_bytes = full.stored_bytes = full.device_peak_bytes = full.host_bytes = 7;
  EXPECT_TRUE(to_json(full).ends_with(
      R"("tflops": 0.5, "bound_seconds": 0.5, "bound_by": "load", "bound_share": 0.5, )"
      R"("stall_seconds": 0.5, "loaded_bytes": 7, "stored_bytes": 7, "device_peak_bytes": 7, )"
      R"("host_bytes": 7, "speculated_chunks": 5, "rolled_back_chunks": 2, "eval_loss": null})"))
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
      to_json(EndRecord{.steps = 5, .state_hash = 0xabc, .peak_rss_bytes = 4096, .parameters = 12}),
      R"({"end": true, "steps": 5, "state_hash": "0000000000000abc", )"
      R"("peak_rss_bytes": 4096, "parameters": 12})");
}

TEST(RunLog, WritesWholeLinesAndKeepsTheOldFile) {
  const std::string path =
      (fs::temp_directory_path() / ("ebb-log-" + std::to_string(::getpid()))).string();
  std::ofstream(path) << std::string(10'000, 'x');
  {
    RunLog log(path);
    EXPECT_EQ(content_of(path), std::string(10'000, 'x')) << "the log has not begun yet";
    EXPECT_EQ(log.begin(0), fs::canonical(path).string() + ".1");
    EXPECT_EQ(content_of(path), "");
    EXPECT_EQ(content_of(path + ".1"), std::string(10'000, 'x'));
    log.write(some_step());
    EXPECT_EQ(content_of(path), to_json(some_step()) + "\n");
    log.write(EndRecord{});
    EXPECT_EQ(content_of(path), to_json(some_step()) + "\n" + to_json(EndRecord{}) + "\n");
  }
  RunLog second(path);
  EXPECT_TRUE(second.begin(2)->ends_with(".2"))
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
  const auto cut = [&](const std::string& content, uint64_t last_step) {
    std::ofstream(path) << content;
    RunLog log(path);
    const auto aside = log.begin(last_step);
    EXPECT_EQ(aside.has_value(), !content.empty() && content_of(path).empty());
    if (aside) fs::remove(*aside);
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
  EXPECT_EQ(cut(three + "{}\n" + line(4), 9), three);
  EXPECT_EQ(cut("", 9), "");
  EXPECT_EQ(cut(three.substr(0, 5), 9), "");
  fs::remove(path);
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

/// Limits the size of files until destroyed, like a disk that fills up in the middle of a run.
class FileSizeLimit {
 public:
  explicit FileSizeLimit(rlim_t bytes) : handler_(::signal(SIGXFSZ, SIG_IGN)) {
    ::getrlimit(RLIMIT_FSIZE, &before_);
    const rlimit limited = {bytes, before_.rlim_max};
    ::setrlimit(RLIMIT_FSIZE, &limited);
  }
  ~FileSizeLimit() {
    ::setrlimit(RLIMIT_FSIZE, &before_);
    ::signal(SIGXFSZ, handler_);
  }

 private:
  void (*handler_)(int);
  rlimit before_ = {};
};

TEST(RunLog, ADiskThatFillsUpLaterIsAnError) {
  const std::string path =
      (fs::temp_directory_path() / ("ebb-full-" + std::to_string(::getpid()))).string();
  {
    RunLog log(path);
    const FileSizeLimit limit(1000);
    const auto write_much = [&log] {
      for (int i = 0; i < 100; ++i) log.write(some_step());
    };
    EXPECT_THROW(write_much(), IoError);
  }
  fs::remove(path);
}

}  // namespace
}  // namespace ebb
