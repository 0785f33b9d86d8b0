#include "tests/trainer/fault_drill.h"

#include <gtest/gtest.h>

#include "tests/trainer/cases.h"
#include "tests/trainer/watchdog.h"

namespace ebb::test {
namespace {

constexpr int64_t kTinyLength = 8;

/// Two steps of a tiny model whose chunks move, each followed by an evaluation.
struct Drill {
  explicit Drill(DeviceKind kind, UpdateOrder update = UpdateOrder::Overlap,
                 const Gpt2Config& config = tiny_gpt())
      : run{.accumulation = 2,
            .memory = Memory::Smallest,
            .update = update,
            .device = kind,
            .evaluation_batches = 1},
        model(config, kMicroBatchSize, kTinyLength, DType::BF16),
        prepared(prepare_case(model, run)),
        data(config, kTinyLength, run.accumulation, 3),
        evaluation(config, kTinyLength, run.evaluation_batches, 4) {}

  std::unique_ptr<Device> create(std::function<bool(FaultSite)> fault) const {
    return create_device({.profile = {.kind = run.device, .num_threads = 1},
                          .memory_bytes = prepared.ledger.total(Tier::Device),
                          .poison = true,
                          .fault = std::move(fault)});
  }
  void train(Device& device) const {
    Trainer trainer(model, device, prepared);
    for (int step = 0; step < 2; ++step) {
      trainer.step(data.micro_batches(), 1e-3);
      trainer.evaluate(evaluation.micro_batches());
    }
  }

  TrainingCase run;
  Gpt2 model;
  Preparation prepared;
  Data data, evaluation;
};

template <class Expected>
void expect_error(const Drill& drill, Device& device) {
  try {
    drill.train(device);
    ADD_FAILURE() << "no error was thrown";
  } catch (const Expected& error) {
    EXPECT_NE(std::string_view(error.what()).find("injected"), std::string_view::npos)
        << error.what();
  } catch (const std::exception& error) {
    ADD_FAILURE() << "another error was thrown: " << error.what();
  }
}

}  // namespace

uint64_t num_operations(FaultSite site, DeviceKind kind) {
  const Drill drill(kind);
  uint64_t count = 0;
  const auto device = drill.create([&](FaultSite at) {
    count += at == site;
    return false;
  });
  drill.train(*device);
  return count;
}

void fail_operation(FaultSite site, uint64_t n, DeviceKind kind) {
  SCOPED_TRACE(testing::Message() << "operation " << n << " of kind " << static_cast<int>(site));
  const Watchdog watchdog;
  const Drill drill(kind);
  uint64_t count = 0;
  const auto device = drill.create([&](FaultSite at) { return at == site && count++ == n; });
  if (site == FaultSite::Allocation) {
    expect_error<OutOfMemory>(drill, *device);
  } else {
    expect_error<DeviceError>(drill, *device);
  }
  // The device keeps its workspace. The destroyed trainer has freed all other memory.
  const size_t workspace_bytes = drill.prepared.ledger.bytes("workspace", Tier::Device);
  EXPECT_TRUE(device->used_bytes() == 0 || device->used_bytes() == workspace_bytes);
}

void fail_operations(FaultSite site, uint64_t most, DeviceKind kind) {
  const uint64_t count = num_operations(site, kind);
  ASSERT_GT(count, 0u);
  const uint64_t num_failed = std::min(most, count);
  for (uint64_t i = 0; i < num_failed; ++i) fail_operation(site, i * count / num_failed, kind);
}

void fail_evaluations(FaultSite site) {
  const Drill drill(DeviceKind::Host);
  for (uint64_t n = 0;; ++n) {
    SCOPED_TRACE(n);
    const Watchdog watchdog;
    bool evaluates = false;
    uint64_t count = 0;
    const auto device =
        drill.create([&](FaultSite at) { return evaluates && at == site && count++ == n; });
    Trainer trainer(drill.model, *device, drill.prepared);
    trainer.step(drill.data.micro_batches(), 1e-3);
    const uint64_t before = trainer.state_hash();
    evaluates = true;
    try {
      trainer.evaluate(drill.evaluation.micro_batches());
      EXPECT_GT(n, 2u) << "few operations failed";
      return;
    } catch (const DeviceError&) {
    }
    evaluates = false;
    EXPECT_EQ(trainer.state_hash(), before);
  }
}

void fail_steps_twice() {
  Gpt2Config config = tiny_gpt();
  config.num_layers = 4;  // several chunks, so that some are updated and some are not
  const Drill drill(DeviceKind::Host, UpdateOrder::Wait, config);
  const auto is_lost = [](Trainer& trainer) {
    try {
      (void)trainer.state_hash();
      return false;
    } catch (const LogicError&) {
      return true;
    }
  };
  int num_lost = 0;
  for (uint64_t n = 0;; ++n) {
    SCOPED_TRACE(n);
    const Watchdog watchdog;
    uint64_t count = 0;
    const auto device =
        drill.create([&](FaultSite at) { return at == FaultSite::Launch && count++ == n; });
    Trainer trainer(drill.model, *device, drill.prepared);
    try {
      trainer.step(drill.data.micro_batches(), 1e-3);
      break;
    } catch (const DeviceError&) {
    }
    const bool lost = is_lost(trainer);
    EXPECT_THROW(trainer.step(drill.data.micro_batches(), 1e-3), LogicError);
    EXPECT_EQ(is_lost(trainer), lost);
    num_lost += lost;
  }
  EXPECT_GT(num_lost, 0) << "no fault interrupted an update";
}

}  // namespace ebb::test
