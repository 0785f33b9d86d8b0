// Checkpoints that several ranks write together, each its own part, while they train on.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <thread>

#include "comm/thread_ranks.h"
#include "device/errors.h"
#include "model_zoo/model_files.h"
#include "tests/tools/run_ebb.h"
#include "tests/trainer/checkpoint_cases.h"
#include "tests/trainer/watchdog.h"
#include "tools/checkpoint_writer.h"

namespace ebb::test {
namespace {

namespace fs = std::filesystem;

constexpr uint32_t kSaves = 2;  // one after each step but the last

/// [name] the content of the files of a folder.
using Files = std::map<std::string, std::string>;
Files files_of(const fs::path& folder) {
  Files files;
  for (const auto& entry : fs::directory_iterator(folder)) {
    files[entry.path().filename().string()] = content_of(entry.path());
  }
  return files;
}

class RankSaves : public testing::Test {
 protected:
  /// Trains on as many threads as there are ranks. After each step but the last, all save; rank r
  /// waits for the save only in the next step. Returns the hash of the state at the end.
  uint64_t train_and_save(const TrainingCase& run, const std::string& to) const {
    const Watchdog watchdog;
    ThreadRanks ranks(run.num_ranks, {.ranks_per_machine = run.num_ranks / run.num_machines});
    const SaveFolder folder(to, "", 0);
    std::vector<uint64_t> hashes(run.num_ranks);
    std::vector<std::jthread> threads;
    for (uint32_t rank = 0; rank < run.num_ranks; ++rank) {
      threads.emplace_back([&, rank] {
        Ranks* const mine = run.num_ranks == 1 ? nullptr : &ranks.rank(rank);
        try {
          hashes[rank] = train_rank(run, mine, rank == 0 ? &folder : nullptr);
        } catch (const std::exception& error) {
          ADD_FAILURE() << "rank " << rank << ": " << error.what();
          if (mine != nullptr) mine->fail(error.what());
        }
      });
    }
    threads.clear();
    EXPECT_EQ(std::ranges::count(hashes, hashes[0]), run.num_ranks);
    return hashes[0];
  }

  fs::path path(const std::string& name) const { return folder_.path() / name; }

  TemporaryFolder folder_;

 private:
  static uint64_t train_rank(const TrainingCase& run, Ranks* ranks, const SaveFolder* folder) {
    const Gpt2 model(run.model, kMicroBatchSize, run.length, run.dtype);
    const Preparation prepared = prepare_case(model, run, place_of(ranks).rank);
    const auto device = create_case_device(prepared, run);
    Trainer trainer(model, *device, prepared, ranks);
    const auto write_config = [&run](const std::string& to) {
      write_model_files("", run.model, run.dtype, to);
    };
    CheckpointWriter writer(
        folder, ranks, 0,
        {.files = {.tensors = map_tensors(run.model, model.parameters()),
                   .weight_type = run.dtype,
                   .state_file = kStateFile},
         .write_companions = write_config,
         .bytes = 1 << 20},
        [](const std::string& text) { EXPECT_TRUE(text.starts_with("saved")); });
    for (uint32_t step = 0; step <= kSaves; ++step) {
      if (step > 0) {
        writer.save({.position = {.step = step}, .written_by = "a test", .config = {}}, trainer);
      }
      const Data data(run.model, run.length, run.accumulation, 7 + step);
      trainer.step(prepared.share.micro_batches.of(data.micro_batches()), 1e-3);
      writer.check();
    }
    writer.finish();
    return trainer.state_hash();
  }
};

TrainingCase case_of(uint32_t num_ranks, bool clip, uint32_t num_machines = 1) {
  return {.clip = clip,
          .accumulation = 4,
          .memory = Memory::Smallest,
          .num_threads = 1,
          .order = MicroBatchOrder::Vertical,
          .num_ranks = num_ranks,
          .num_machines = num_machines};
}

/// The state of some chunks is on the devices of their owners.
TrainingCase case_with_device_state(bool clip) {
  TrainingCase run = case_of(2, clip);
  run.between = Between::State;
  run.sums_on_devices = true;
  return run;
}

std::vector<TrainingCase> cases_of(bool clip) {
#if defined(__SANITIZE_THREAD__)
  return {case_of(2, clip), case_with_device_state(clip)};
#else
  return {case_of(2, clip), case_of(3, clip), case_of(4, clip, 2), case_with_device_state(clip)};
#endif
}

class ClippedRankSaves : public RankSaves, public testing::WithParamInterface<bool> {};

/// The matrices of GPT-2 are stored transposed, and the ends of the chunks are inside of rows.
TEST_P(ClippedRankSaves, HaveTheBytesOfOneRank) {
  const std::string one = path("one");
  const uint64_t hash = train_and_save(case_of(1, GetParam()), one);
  for (const TrainingCase& run : cases_of(GetParam())) {
    const std::string several = path(to_string(run));
    EXPECT_EQ(train_and_save(run, several), hash) << "saving changed the run";
    for (uint32_t step = 1; step <= kSaves; ++step) {
      const Files expected = files_of(checkpoint_path(one, step));
      EXPECT_EQ(expected.size(), 5u);
      EXPECT_TRUE(files_of(checkpoint_path(several, step)) == expected)
          << to_string(run) << ", step " << step;
    }
    EXPECT_EQ(saved_steps(several).size(), kSaves);
  }
}

INSTANTIATE_TEST_SUITE_P(OrNot, ClippedRankSaves, testing::Bool());

/// One trainer writes the parts of several ranks, one after the other.
class CheckpointParts : public RankSaves {
 protected:
  CheckpointParts() { run_.train(0, 1); }

  StateReader lock() { return run_.trainer().lock_state(); }
  CheckpointPart part(const std::string& folder, FileUse use) {
    fs::create_directories(path(folder));
    return {path(folder), use, files_, lock(), {}};
  }
  /// Writes all parts, those of other ranks with these owners, and finishes the files.
  void write_parts(
      const std::string& folder, const OwnerSet& first, const std::vector<OwnerSet>& others,
      const std::function<void()>& before_finish = [] {}) {
    CheckpointPart zero = part(folder, FileUse::Create);
    std::vector<std::vector<uint64_t>> summaries;
    for (const OwnerSet& owners : others) {
      CheckpointPart joined = part(folder, FileUse::Join);
      joined.write(lock(), owners, [] {});
      summaries.push_back(joined.summary());
    }
    zero.write(lock(), first, [] {});
    before_finish();
    zero.finish(summaries);
  }
  std::string refusal(const OwnerSet& first, const std::vector<OwnerSet>& others) {
    const std::string error =
        error_of<LogicError>([&] { write_parts("wrong", first, others); }).what();
    EXPECT_TRUE(files_of(path("wrong")).empty() || !fs::exists(path("wrong") / kStateFile));
    return error;
  }

  const TrainingCase case_ = case_of(1, true);
  CaseRun run_{case_};
  const Gpt2 model_{case_.model, kMicroBatchSize, case_.length, case_.dtype};
  CheckpointFiles files_ = {.tensors = map_tensors(case_.model, model_.parameters()),
                            .weight_type = DType::F32,  // of masters, not of weights
                            .state_file = kStateFile};
};

TEST_F(CheckpointParts, OwnersDoNotChangeBytes) {
  write_parts("one", {true}, {});
  const Files one = files_of(path("one"));
  EXPECT_EQ(one.size(), 2u);
  write_parts("two", {true, false}, {{false, true}});
  EXPECT_TRUE(files_of(path("two")) == one);
  write_parts("rank 0 writes for rank 2", {true, false, true}, {{false, true, false}});
  EXPECT_TRUE(files_of(path("rank 0 writes for rank 2")) == one);
}

TEST_F(CheckpointParts, PlantedMissingAndDoubleRangesAreFound) {
  EXPECT_NE(refusal({true, false}, {}).find("bytes were written to"), std::string::npos);
  EXPECT_NE(refusal({true, true}, {{false, true}}).find("bytes were written to"),
            std::string::npos);
  EXPECT_NE(refusal({true, false}, {{true, false}}).find("bytes"), std::string::npos);
}

/// The state alone, because a wrong number of bytes of weights is found first.
TEST_F(CheckpointParts, PlantedMissingPlanesAreFound) {
  files_.tensors.clear();
  EXPECT_NE(refusal({true, false}, {}).find("were not all written"), std::string::npos);
  EXPECT_NE(refusal({true, true}, {{false, true}}).find("some of them twice"), std::string::npos);
}

/// As if another machine did not show what this one wrote.
TEST_F(CheckpointParts, PlantedChangesOfAPieceOfSeveralRanksAreFound) {
  const auto change = [&] {
    const std::string file = path("changed") / (std::string(kStateFile) + ".unfinished");
    std::string content = content_of(file);
    for (size_t i = content.size() / 2; i < content.size(); ++i) content[i] ^= 1;
    std::ofstream(file, std::ios::binary | std::ios::in) << content;
  };
  const auto error = error_of<FormatError>([&] {
    write_parts("changed", {true, false}, {{false, true}}, change);
  });
  EXPECT_SAYS(error, "bytes are not those that were written");
}

}  // namespace
}  // namespace ebb::test
