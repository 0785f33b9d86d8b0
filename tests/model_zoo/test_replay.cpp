// The tape replays the forward of single calls: gradients have the same bits, although the outputs
// are at other addresses.
#include <gtest/gtest.h>

#include <cstring>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "device/device.h"
#include "device/random.h"
#include "model_zoo/bert.h"
#include "model_zoo/gpt2.h"
#include "model_zoo/llama.h"

namespace ebb {
namespace {

constexpr int64_t kBatch = 2, kLength = 8;

/// The weights of a model with random values, and the gradient sums of each use, in plain memory.
class PlainHooks : public Hooks {
 public:
  PlainHooks(Device& device, const Parameters& parameters, DType dtype)
      : device_(device), parameters_(parameters), dtype_(dtype) {
    for (const Parameter& p : parameters) {
      weights_.push_back(make(p.shape, dtype));
      const Tensor weight{weights_.back().data(), dtype, p.shape};
      for (int64_t i = 0; i < weight.num_elements(); ++i) {
        const auto word = philox4x32(static_cast<uint64_t>(i), weights_.size(), 7)[0];
        const float value = 0.4f * static_cast<float>(uniform(word)) - 0.2f;
        if (dtype == DType::BF16) {
          weight.as<BF16>()[i] = BF16(value);
        } else {
          weight.as<float>()[i] = value;
        }
      }
    }
  }
  void begin_call(std::string_view name, Phase phase, std::span<const ParameterUse> uses) override {
    if (phase == Phase::Forward) forwards.emplace_back(name);
    if (phase == Phase::Backward && !uses.empty() && !uses[0].gradient) ++num_weights_read_again;
  }
  Tensor weight(const ParameterUse& use) override {
    return use.rows.of({weights_[use.parameter].data(), dtype_, parameters_[use.parameter].shape});
  }
  GradientTarget gradient(const ParameterUse& use) override {
    auto [at, is_new] = sums_.try_emplace({use.parameter, use.use});
    const Shape shape = parameters_[use.parameter].shape;
    if (is_new) at->second = make(shape, DType::F32);
    return {use.rows.of({at->second.data(), DType::F32, shape}),
            is_new ? Write::Store : Write::Add};
  }
  void end_call() override {}

  /// The bits of all gradient sums.
  std::vector<std::string> gradients() const {
    std::vector<std::string> bits;
    for (const auto& [use, sums] : sums_) {
      bits.emplace_back(reinterpret_cast<const char*>(sums.data()), sums.bytes());
    }
    return bits;
  }

  std::vector<std::string> forwards;  // names
  int num_weights_read_again = 0;

 private:
  Buffer make(const Shape& shape, DType dtype) {
    const auto bytes = static_cast<size_t>(shape.num_elements()) * size_of(dtype);
    return device_.allocate(MemoryKind::Device, bytes, "test");
  }

  Device& device_;
  const Parameters& parameters_;
  const DType dtype_;
  std::vector<Buffer> weights_;
  std::map<std::pair<ParameterId, uint32_t>, Buffer> sums_;
};

std::unique_ptr<const Model> create(const std::string& name, DType dtype) {
  if (name == "gpt2") {
    const Gpt2Config config{
        .vocabulary = 50, .max_positions = 16, .channels = 32, .num_layers = 2, .num_heads = 2};
    return std::make_unique<const Gpt2>(config, kBatch, kLength, dtype);
  }
  if (name == "llama") {
    const LlamaConfig config{.vocabulary = 50,
                             .channels = 32,
                             .num_layers = 2,
                             .num_heads = 4,
                             .num_kv_heads = 2,
                             .head_dim = 8,
                             .mlp_channels = 48,
                             .max_positions = 16,
                             .qkv_bias = true,
                             .qk_norm = true};
    return std::make_unique<const Llama>(config, kBatch, kLength, dtype);
  }
  const BertConfig config{.vocabulary = 50,
                          .max_positions = 16,
                          .channels = 32,
                          .num_layers = 2,
                          .num_heads = 2,
                          .mlp_channels = 64};
  return std::make_unique<const Bert>(config, kBatch, kLength, dtype);
}

enum class Replay { Nothing, EachCall, AllCalls };

struct Outcome {
  double loss = 0;
  std::vector<std::string> gradients;
  int num_weights_read_again = 0;
};

class ReplayTest : public testing::TestWithParam<std::tuple<std::string, DType>> {
 protected:
  ReplayTest() {
    device_->reserve_workspace(size_t{32} << 20);
    for (const InputSpec& spec : model_->inputs()) {
      const auto bytes = static_cast<size_t>(spec.shape.num_elements()) * size_of(spec.dtype);
      memory_.push_back(device_->allocate(MemoryKind::Device, bytes, "test"));
      inputs_.push_back({memory_.back().data(), spec.dtype, spec.shape});
      for (int64_t i = 0; i < spec.shape.num_elements(); ++i) {
        int32_t value = static_cast<int32_t>(i % kLength);  // positions
        if (spec.name == "tokens" || spec.name == "targets") {
          value = static_cast<int32_t>((i * 13 + 5) % 50);
        } else if (spec.name != "positions") {
          value = 0;
        }
        inputs_.back().as<int32_t>()[i] = value;
      }
    }
  }

  /// What a call freed holds other bytes, and outputs move: nothing may read a stale address.
  void release(Tape& tape, size_t record) {
    compute_->synchronize();
    spoils_ = true;
    tape.release_outputs(record);
    spoils_ = false;
    arena_.allocate(256);
  }

  void replay(Tape& tape, const std::vector<std::string>& names, Replay how) {
    const auto in_place = [&](size_t i) { return names[i] == "rotary" || names[i] == "dropout"; };
    if (how == Replay::AllCalls) {
      for (size_t i = 0; i < names.size(); ++i) release(tape, i);
      for (size_t i = 0; i < names.size(); ++i) tape.replay_call(i);
    }
    if (how != Replay::EachCall) return;
    for (size_t i = 0; i < names.size(); ++i) {
      const bool is_pair = i + 1 < names.size() && in_place(i + 1);
      release(tape, is_pair ? i + 1 : i);
      tape.replay_call(i);
      if (is_pair) tape.replay_call(++i);
    }
  }

  Outcome run(Replay how) {
    PlainHooks hooks(*device_, model_->parameters(), dtype_);
    Tape tape(*device_, *compute_, hooks, arena_);
    const Buffer total = device_->allocate(MemoryKind::Device, sizeof(double), "test");
    tape.begin_micro_batch({.dropout = {.probability = 0.2f, .key = 3}},
                           {total.data(), DType::F64, {1}}, 0.5f);
    Variable x = model_->begin(tape, inputs_);
    for (uint32_t i = 0; i < model_->num_layers(); ++i) x = model_->layer(tape, inputs_, i, x);
    model_->end(tape, inputs_, x);
    std::vector<std::string> names = hooks.forwards;  // of the calls that have a backward
    std::erase_if(names, [](const auto& n) { return n == "rotary_table" || n == "classifier"; });
    EXPECT_EQ(names.size(), tape.num_records());
    tape.begin_backward();
    replay(tape, names, how);
    tape.backward_of_part();
    tape.end_micro_batch();
    compute_->synchronize();
    return {.loss = *reinterpret_cast<const double*>(total.data()),
            .gradients = hooks.gradients(),
            .num_weights_read_again = hooks.num_weights_read_again};
  }

  const DType dtype_ = std::get<1>(GetParam());
  const std::unique_ptr<const Model> model_ = create(std::get<0>(GetParam()), dtype_);
  const std::unique_ptr<Device> device_ = create_device({.profile = {.num_threads = 2}});
  const std::unique_ptr<Stream> compute_ = device_->create_stream(StreamKind::Compute);
  std::vector<Buffer> memory_;
  std::vector<Tensor> inputs_;
  bool spoils_ = false;
  const Buffer arena_memory_ = device_->allocate(MemoryKind::Device, size_t{8} << 20, "test");
  Arena arena_{arena_memory_.data(), arena_memory_.bytes(),
               [this](ArenaEvent event, size_t offset, size_t bytes) {
                 if (!spoils_ || event != ArenaEvent::Release) return;
                 std::memset(arena_memory_.data() + offset, 0xa5, bytes);
               }};
};

INSTANTIATE_TEST_SUITE_P(Models, ReplayTest,
                         testing::Combine(testing::Values("gpt2", "llama", "bert"),
                                          testing::Values(DType::F32, DType::BF16)),
                         [](const auto& info) {
                           return std::get<0>(info.param) + "_" +
                                  std::string(name_of(std::get<1>(info.param)));
                         });

TEST_P(ReplayTest, ReplayedCallsChangeNoBit) {
  const Outcome expected = run(Replay::Nothing);
  ASSERT_EQ(expected.gradients.size(),
            model_->parameters().size() + (std::get<0>(GetParam()) == "llama" ? 0 : 1));
  EXPECT_EQ(expected.num_weights_read_again, 0);
  for (const Replay how : {Replay::EachCall, Replay::AllCalls}) {
    const Outcome got = run(how);
    EXPECT_EQ(got.loss, expected.loss);
    EXPECT_TRUE(got.gradients == expected.gradients) << static_cast<int>(how);
    EXPECT_GT(got.num_weights_read_again, 0);
  }
}

TEST_P(ReplayTest, OutputsThatWereFreedCannotBeUsed) {
  PlainHooks hooks(*device_, model_->parameters(), dtype_);
  Tape tape(*device_, *compute_, hooks, arena_);
  const Buffer total = device_->allocate(MemoryKind::Device, sizeof(double), "test");
  tape.begin_micro_batch({}, {total.data(), DType::F64, {1}}, 0.5f);
  const Variable x = model_->begin(tape, inputs_);
  const size_t last = tape.num_records() - 1;
  EXPECT_THROW(tape.replay_call(last), LogicError);  // its outputs are still there
  tape.release_outputs(last);
  EXPECT_THROW(model_->layer(tape, inputs_, 0, x), LogicError);
  compute_->synchronize();
}

}  // namespace
}  // namespace ebb
