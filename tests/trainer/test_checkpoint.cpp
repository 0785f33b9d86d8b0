// A run that continues from a checkpoint file has the bits of a run that was never interrupted.
#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <limits>
#include <thread>

#include "device/errors.h"
#include "model_zoo/checkpoint.h"
#include "tests/error_of.h"
#include "tests/trainer/checkpoint_cases.h"

namespace ebb::test {
namespace {

namespace fs = std::filesystem;

constexpr uint32_t kSaved = 2, kEnd = 4;  // steps

class Checkpoint : public testing::Test {
 protected:
  Checkpoint() {
    std::string name = (fs::temp_directory_path() / "ebb-state-XXXXXX").string();
    if (::mkdtemp(name.data()) == nullptr) throw std::runtime_error("mkdtemp failed");
    folder_ = name;
  }
  ~Checkpoint() override {
    std::error_code ignored;
    fs::remove_all(folder_, ignored);
  }
  std::string file() const { return (folder_ / "state.ebb").string(); }

  /// Trains all steps. Another thread saves the state after step kSaved while training continues.
  Outcome train_and_save(const TrainingCase& run) const {
    CaseRun training(run);
    training.train(0, kSaved);
    std::jthread writer([reader = training.trainer().lock_state(), this]() mutable {
      write_state(std::move(reader), file());
    });
    training.train(kSaved, kEnd);
    return training.outcome();
  }

  Outcome train_without(const TrainingCase& run) const {
    CaseRun training(run);
    training.train(0, kEnd);
    return training.outcome();
  }

  /// Loads the file and trains the steps that follow.
  Outcome resume(const TrainingCase& run) const {
    CaseRun training(run);
    read_state(training.trainer(), file());
    training.train(kSaved, kEnd);
    return training.outcome();
  }

  fs::path folder_;
};

Outcome without_first_steps(Outcome outcome) {
  outcome.losses.erase(outcome.losses.begin(), outcome.losses.begin() + kSaved);
  outcome.norms.erase(outcome.norms.begin(), outcome.norms.begin() + kSaved);
  return outcome;
}

/// Returns the case with another budget, chunk size, number of threads and schedule.
TrainingCase other_schedule(TrainingCase run) {
  run.memory = run.memory == Memory::Smallest ? Memory::Resident : Memory::Smallest;
  run.num_pieces = run.num_pieces == 1 ? 9 : 1;
  run.num_threads = 3 - run.num_threads;
  run.recompute = kRecomputeEach;
  run.update = run.update == UpdateOrder::Wait ? UpdateOrder::Overlap : UpdateOrder::Wait;
  run.between = run.between == Between::Nothing ? Between::State : Between::Nothing;
  return run;
}

class CheckpointOfACase : public Checkpoint, public testing::WithParamInterface<TrainingCase> {};

TEST_P(CheckpointOfACase, ContinuesWithTheSameBits) {
  const TrainingCase run = GetParam();
  const Outcome whole = train_without(run);
  EXPECT_EQ(to_string(train_and_save(run)), to_string(whole)) << "saving changed the run";
  const Outcome rest = without_first_steps(whole);
  EXPECT_EQ(to_string(resume(run)), to_string(rest));
  EXPECT_EQ(to_string(resume(other_schedule(run))), to_string(rest)) << other_schedule(run);
}

INSTANTIATE_TEST_SUITE_P(
    Cases, CheckpointOfACase,
    testing::Values(
        TrainingCase{.accumulation = 2, .memory = Memory::Smallest, .num_threads = 2},
        TrainingCase{.update = UpdateOrder::Speculate, .max_norm = 1e9f},
        TrainingCase{.dtype = DType::F16, .update = UpdateOrder::Speculate, .max_norm = 1e9f},
        TrainingCase{.update = UpdateOrder::Wait, .between = Between::State},
        TrainingCase{.clip = false, .num_threads = 2, .between = Between::State},
        TrainingCase{.clip = false, .memory = Memory::Between, .between = Between::Weights},
        TrainingCase{.clip = false, .memory = Memory::Smallest, .num_pieces = 4},
        TrainingCase{.dtype = DType::F32, .accumulation = 3, .order = MicroBatchOrder::Vertical},
        TrainingCase{.dtype = DType::F32, .clip = false, .memory = Memory::Smallest},
        TrainingCase{.dtype = DType::F16, .accumulation = 2, .memory = Memory::Smallest},
        TrainingCase{.dtype = DType::F16, .clip = false, .between = Between::State},
        TrainingCase{.accumulation = 2, .memory = Memory::Smallest, .dropout = 0.2f}));

TEST_F(Checkpoint, TheFileDoesNotDependOnTheSchedule) {
  const auto content = [this](const TrainingCase& run) {
    CaseRun training(run);
    training.train(0, 1);
    write_state(training.trainer().lock_state(), file());
    std::ifstream in(file(), std::ios::binary);
    return std::string(std::istreambuf_iterator<char>(in), {});
  };
  const TrainingCase run{.num_threads = 2};
  const std::string first = content(run);
  EXPECT_EQ(first.substr(0, 8), "EBBSTATE");
  EXPECT_TRUE(content(other_schedule(run)) == first);
  EXPECT_LE(first.size(), state_file_bytes(*CaseRun(run).prepared().layout));
}

/// The file stores the number of updates (Adam's t), the number of skipped steps, and the number of
/// steps skipped in a row: a third one ends the resumed run.
TEST_F(Checkpoint, StoresTheCountsOfSkippedSteps) {
  const TrainingCase run;
  CaseRun training(run);
  training.train(0, 1);
  const std::vector<float> weight = training.trainer().read_parameter("wte.weight");
  std::vector<float> bad = weight;
  std::ranges::fill(bad, std::numeric_limits<float>::quiet_NaN());
  training.trainer().write_parameter("wte.weight", bad);
  training.train(1, 3);
  training.trainer().write_parameter("wte.weight", weight);
  EXPECT_EQ(training.trainer().num_skipped(), 2u);
  write_state(training.trainer().lock_state(), file());
  CaseRun resumed(run);
  read_state(resumed.trainer(), file());
  EXPECT_EQ(resumed.trainer().num_skipped(), 2u);
  EXPECT_EQ(resumed.trainer().num_updates(), 1);
  EXPECT_EQ(resumed.trainer().state_hash(), training.trainer().state_hash());
  resumed.trainer().write_parameter("wte.weight", bad);
  EXPECT_THROW(resumed.train(3, 4), NumericError);
}

/// With fp16 the file also stores the loss scale and the number of good steps since it changed.
TEST_F(Checkpoint, StoresTheLossScale) {
  const TrainingCase run{.dtype = DType::F16};
  CaseRun training(run);
  const std::vector<float> weight = training.trainer().read_parameter("wte.weight");
  const std::vector<float> bad(weight.size(), std::numeric_limits<float>::quiet_NaN());
  training.trainer().write_parameter("wte.weight", bad);
  training.train(0, 2);
  training.trainer().write_parameter("wte.weight", weight);
  training.train(2, 5);
  write_state(training.trainer().lock_state(), file());
  CaseRun resumed(run);
  read_state(resumed.trainer(), file());
  const OptimizerCounters expected{
      .num_updates = 3, .num_skipped = 2, .loss_scale = {.value = 16384, .num_good_steps = 3}};
  EXPECT_EQ(resumed.trainer().lock_state().counters(), expected);
  EXPECT_EQ(resumed.trainer().state_hash(), training.trainer().state_hash());
}

/// Changes one byte of a checkpoint file and expects the error of reading it.
class DamagedCheckpoint : public Checkpoint {
 protected:
  DamagedCheckpoint() { write_state(CaseRun(TrainingCase{}).trainer().lock_state(), file()); }

  void change(uint64_t offset, char by) const {
    std::fstream io(file(), std::ios::binary | std::ios::in | std::ios::out);
    io.seekg(static_cast<std::streamoff>(offset));
    const char old = static_cast<char>(io.get());
    io.seekp(static_cast<std::streamoff>(offset));
    io.put(static_cast<char>(old + by));
  }
  void expect_refusal(const TrainingCase& run, uint64_t first, uint64_t last,
                      const std::string& text) const {
    CaseRun training(run);
    const auto error = error_of<FormatError>([&] { read_state(training.trainer(), file()); });
    EXPECT_EQ(error.path, file());
    EXPECT_GE(error.offset, first) << error.what();
    EXPECT_LE(error.offset, last) << error.what();
    EXPECT_SAYS(error, text);
  }
  /// The bytes before this offset have checksums at the start of the file.
  static constexpr uint64_t kHashed = 4096;
  void expect_damaged(uint64_t offset, const std::string& text) const {
    change(offset, 1);
    expect_refusal({}, 0, std::max(offset, kHashed), text);
    change(offset, -1);
  }
};

TEST_F(DamagedCheckpoint, IsRefusedWithTheOffsetOfTheDamage) {
  const uint64_t size = fs::file_size(file());
  expect_damaged(3, "not a training state");
  expect_damaged(8, "version 2 of the format; this program reads version 1");
  expect_damaged(40, "the header is damaged");
  expect_damaged(17, "the header is damaged");
  expect_damaged(25, "table of checksums is damaged");
  expect_damaged(size / 2, "bytes are damaged: of '");
  expect_damaged(size - 1, "plane variance");
  CaseRun whole{TrainingCase{}};
  read_state(whole.trainer(), file());
}

TEST_F(DamagedCheckpoint, IsRefusedWhereItEndsEarly) {
  const uint64_t size = fs::file_size(file());
  for (const uint64_t left : {size - 1, size / 2, uint64_t{50}, uint64_t{7}, uint64_t{0}}) {
    fs::resize_file(file(), left);
    expect_refusal({}, left, left, "should have");
  }
}

TEST_F(DamagedCheckpoint, IsRefusedForAnotherModelOrType) {
  expect_refusal({.dtype = DType::F32}, 32, 32, "of bf16 weights, the run's are fp32");
  const Gpt2 model(tiny_gpt(), 1, 8, DType::BF16);
  const Preparation prepared =
      prepare(model, {.chunk_bytes = 131072}, {.device = {.num_threads = 1}});
  const auto device = create_device({.profile = {.num_threads = 1}});
  Trainer trainer(model, *device, prepared);
  const auto error = error_of<FormatError>([&] { read_state(trainer, file()); });
  EXPECT_STREQ(std::strstr(error.what(), "parameter 0"),
               "parameter 0 is 'wte.weight' (257, 128), the model's is 'wte.weight' (97, 64)");
}

}  // namespace
}  // namespace ebb::test
