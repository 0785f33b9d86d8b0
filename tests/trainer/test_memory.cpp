// A run allocates all its memory before step 0. All of it is in the ledger and within the budget.
#include <gtest/gtest.h>

#include <map>
#include <set>

#include "scheduler/run/inference.h"
#include "tests/forwarding_model.h"
#include "tests/trainer/cases.h"
#include "tests/trainer/counting_malloc.h"

namespace ebb::test {
namespace {

/// Forwards all calls to another device and counts the bytes of host memory per tag.
class RecordingDevice : public Device {
 public:
  explicit RecordingDevice(Device& device) : device_(device) {}
  const DeviceInfo& info() const override { return device_.info(); }
  Buffer allocate(MemoryKind kind, size_t bytes, std::string_view tag) override {
    if (kind != MemoryKind::Device) host_bytes_[std::string(tag)] += bytes;
    return device_.allocate(kind, bytes, tag);
  }
  std::unique_ptr<Blocks> create_blocks(size_t block_bytes, uint32_t num_blocks) override {
    return device_.create_blocks(block_bytes, num_blocks);
  }
  void reserve_workspace(size_t bytes) override { device_.reserve_workspace(bytes); }
  std::unique_ptr<Stream> create_stream(StreamKind role) override {
    return device_.create_stream(role);
  }
  std::unique_ptr<Event> create_event() override { return device_.create_event(); }
  Kernels& kernels() override { return device_.kernels(); }
  size_t used_bytes() const override { return device_.used_bytes(); }
  size_t peak_bytes() const override { return device_.peak_bytes(); }
  uint64_t num_allocations() const override { return device_.num_allocations(); }
  double now_s() const override { return device_.now_s(); }

  const std::map<std::string, size_t>& host_bytes() const { return host_bytes_; }

 private:
  void free(MemoryKind, std::byte*, size_t) noexcept override {
  }  // the inner device frees its buffers

  Device& device_;
  std::map<std::string, size_t> host_bytes_;
};

/// Trains at the smallest budget, where all chunks move, or with everything resident.
class MemoryOfARun : public testing::TestWithParam<TrainingCase> {
 protected:
  MemoryOfARun()
      : model_(small_gpt(), kMicroBatchSize, kLength, GetParam().dtype),
        prepared_(prepare_case(model_, GetParam())),
        host_device_(create_case_device(prepared_, GetParam())),
        device_(*host_device_),
        data_(small_gpt(), kLength, GetParam().accumulation, 3),
        evaluation_(small_gpt(), kLength, GetParam().evaluation_batches, 4) {}

  void step(Trainer& trainer) {
    trainer.step(data_.micro_batches(), 1e-3);
    if (GetParam().evaluation_batches > 0) trainer.evaluate(evaluation_.micro_batches());
  }

  Gpt2 model_;
  Preparation prepared_;
  std::unique_ptr<Device> host_device_;
  RecordingDevice device_;
  Data data_, evaluation_;
};

TEST_P(MemoryOfARun, NothingIsAllocatedAfterStepTwo) {
  if (!counts_mallocs()) GTEST_SKIP() << "a sanitizer replaces the allocator";
  Trainer trainer(model_, device_, prepared_);
  for (int i = 0; i < 2; ++i) step(trainer);
  const uint64_t allocations = device_.num_allocations();
  const uint64_t mallocs = num_mallocs();
  for (int i = 0; i < 5; ++i) step(trainer);
  EXPECT_EQ(num_mallocs(), mallocs);
  EXPECT_EQ(device_.num_allocations(), allocations);
}

TEST_P(MemoryOfARun, DeviceTakesWhatTheLedgerSays) {
  const size_t planned = prepared_.ledger.total(Tier::Device);
  {
    Trainer trainer(model_, device_, prepared_);
    EXPECT_EQ(device_.used_bytes(), planned);
    for (int i = 0; i < 2; ++i) step(trainer);
    EXPECT_EQ(device_.used_bytes(), planned);
  }
  EXPECT_EQ(device_.peak_bytes(), planned);
  EXPECT_LE(device_.peak_bytes(), device_.info().memory_bytes);
  EXPECT_EQ(device_.used_bytes(), prepared_.ledger.bytes("workspace", Tier::Device));
}

/// All host memory that the device copies from or to is one allocation, "home". Its size is the sum
/// of its ledger entries, and with the numbers of sum slots also some bytes of alignment.
class HomeOfARun : public MemoryOfARun {};
TEST_P(HomeOfARun, HostTakesWhatTheLedgerSays) {
  const std::set<std::string> copied = {"weight", "gradients", "gradient sums", "partial norms"};
  Trainer trainer(model_, device_, prepared_);
  std::map<std::string, size_t> planned;
  for (const LedgerEntry& e : prepared_.ledger.entries()) {
    if (e.tier == Tier::Host) planned[copied.contains(e.name) ? "home" : e.name] += e.bytes;
  }
  EXPECT_EQ(device_.host_bytes(), planned);
}

const TrainingCase kOneSum[] = {
    {.accumulation = 2, .memory = Memory::Smallest, .num_threads = 2},
    {.clip = false, .recompute = kRecomputeEach, .num_threads = 2, .evaluation_batches = 1},
    {.dtype = DType::F32,
     .clip = false,
     .accumulation = 2,
     .memory = Memory::Smallest,
     .recompute = kRecomputeEach,
     .num_threads = 1,
     .evaluation_batches = 3}};
INSTANTIATE_TEST_SUITE_P(Cases, MemoryOfARun, testing::ValuesIn(kOneSum));
INSTANTIATE_TEST_SUITE_P(Cases, HomeOfARun, testing::ValuesIn(kOneSum));
INSTANTIATE_TEST_SUITE_P(RoundedSums, MemoryOfARun,
                         testing::Values(TrainingCase{.accumulation = 4,
                                                      .memory = Memory::Smallest,
                                                      .order = MicroBatchOrder::Vertical,
                                                      .groups = 2,
                                                      .group_dtype = DType::BF16},
                                         TrainingCase{.accumulation = 3,
                                                      .memory = Memory::Smallest,
                                                      .sums_on_devices = true,
                                                      .group_dtype = DType::BF16}));

/// Measures the arena while a micro-batch runs forward.
class MeasuringModel : public ForwardingModel {
 public:
  using ForwardingModel::ForwardingModel;
  Variable begin(Tape& tape, std::span<const Tensor> inputs) const override {
    peak_ = tape.arena().peak_bytes();
    live_.clear();
    return ForwardingModel::begin(tape, inputs);
  }
  Variable layer(Tape& tape, std::span<const Tensor> inputs, uint32_t i,
                 Variable x) const override {
    if (i == live_.size()) live_.push_back(tape.arena().live_bytes());  // or it runs again
    return ForwardingModel::layer(tape, inputs, i, x);
  }
  void end(Tape& tape, std::span<const Tensor> inputs, Variable x) const override {
    live_.push_back(tape.arena().live_bytes());
    ForwardingModel::end(tape, inputs, x);
  }

  /// When the last micro-batch began.
  size_t peak_bytes() const { return peak_; }
  /// Of the last micro-batch: before each layer, and after all layers.
  const std::vector<size_t>& live_bytes() const { return live_; }

 private:
  mutable size_t peak_ = 0;
  mutable std::vector<size_t> live_;
};

/// What each layer keeps until the backward of its micro-batch, and the most that exists at a time.
TEST(MemoryOfActivations, IsWhatThePlanSays) {
  const Gpt2 gpt(small_gpt(), kMicroBatchSize, kLength, DType::BF16);
  const MeasuringModel model(gpt);
  const Data data(small_gpt(), kLength, 2, 3);
  const size_t embedded_bytes = kMicroBatchSize * kLength * 128 * size_of(DType::BF16);
  std::set<size_t> totals;
  for (const Recompute& recompute :
       {kRecomputeNone, Recompute{.groups = {kNormsLevel}}, Recompute{.groups = {kMlpLevel}},
        kRecomputeEach, Recompute{.groups = {kWholeLayer, kAttentionLevel, kMlpLevel, kKeepAll}}}) {
    const TrainingCase run{.accumulation = 2, .recompute = recompute};
    const Preparation p = prepare_case(model, run);
    std::vector<size_t> planned = {embedded_bytes};
    for (const LayerSummary& layer : p.layers) planned.push_back(planned.back() + layer.kept_bytes);
    const auto device = create_case_device(p, run);
    Trainer trainer(model, *device, p);
    trainer.step(data.micro_batches(), 1e-3);
    EXPECT_EQ(model.live_bytes(), planned) << name_of(recompute, 4);
    EXPECT_EQ(model.peak_bytes(), p.trace.arena_bytes) << name_of(recompute, 4);
    EXPECT_EQ(device->peak_bytes(), p.ledger.total(Tier::Device)) << name_of(recompute, 4);
    totals.insert(planned.back());
  }
  EXPECT_EQ(totals.size(), 5u);
}

/// Also in the smallest budget, in which a run loads weights.
TEST(MemoryOfAnInference, NothingIsAllocatedAfterTheFirstRun) {
  if (!counts_mallocs()) GTEST_SKIP() << "a sanitizer replaces the allocator";
  const Gpt2 model(small_gpt(), kMicroBatchSize, kLength, DType::BF16);
  const Data data(small_gpt(), kLength, 1, 3);
  const ForwardSpec forward{.model = &model};
  const InferenceOptions options{.chunk_bytes = kPieceElements * size_of(DType::BF16)};
  const PreparedInference all = prepare_inference({&forward, 1}, options, {});
  for (const size_t budget : {all.full_device_bytes, all.smallest_device_bytes}) {
    const PreparedInference prepared =
        prepare_inference({&forward, 1}, options, {.device_memory = budget});
    const auto device = create_device({.memory_bytes = budget});
    Inference inference(*device, prepared);
    inference.run(0, data.micro_batches()[0]);
    const uint64_t allocations = device->num_allocations(), mallocs = num_mallocs();
    for (int i = 0; i < 3; ++i) inference.run(0, data.micro_batches()[0]);
    EXPECT_EQ(num_mallocs(), mallocs) << budget;
    EXPECT_EQ(device->num_allocations(), allocations) << budget;
  }
}

TEST(CountingMalloc, Counts) {
  if (!counts_mallocs()) GTEST_SKIP() << "a sanitizer replaces the allocator";
  const uint64_t before = num_mallocs();
  std::vector<std::unique_ptr<int>> kept;
  for (int i = 0; i < 10; ++i) kept.push_back(std::make_unique<int>(i));
  EXPECT_GE(num_mallocs(), before + 10);
}

}  // namespace
}  // namespace ebb::test
