#include "tests/trainer/cases.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <ostream>
#include <stdexcept>
#include <thread>

#include "comm/thread_ranks.h"
#include "device/ignored_label.h"
#include "device/random.h"

namespace ebb::test {
namespace {

constexpr uint64_t kDataSeed = 7;
constexpr double kLearningRate = 1e-3;

Tensor tensor_of(std::vector<int32_t>& values, int64_t length) {
  return {reinterpret_cast<std::byte*>(values.data()), DType::I32, {kMicroBatchSize, length}};
}

}  // namespace

Gpt2Config small_gpt() {
  return {.vocabulary = 257, .max_positions = 32, .channels = 128, .num_layers = 4, .num_heads = 4};
}

Gpt2Config tiny_gpt() {
  return {.vocabulary = 97, .max_positions = 16, .channels = 64, .num_layers = 1, .num_heads = 2};
}

Gpt2Config emulated_gpt() {
  return {.vocabulary = 97, .max_positions = 16, .channels = 64, .num_layers = 3, .num_heads = 2};
}

Data::Data(const Gpt2Config& config, int64_t length, uint32_t num_micro_batches, uint64_t seed) {
  const size_t count = static_cast<size_t>(kMicroBatchSize * length);
  values_.reserve(3 * num_micro_batches);
  uint64_t word = 0;
  const auto token = [&] {
    const auto words = philox4x32(word++, 0, seed);
    return static_cast<int32_t>(words[0] % static_cast<uint32_t>(config.vocabulary));
  };
  for (uint32_t k = 0; k < num_micro_batches; ++k) {
    auto& tokens = values_.emplace_back(count);
    auto& positions = values_.emplace_back(count);
    auto& targets = values_.emplace_back(count);
    MicroBatch batch;
    for (size_t i = 0; i < count; ++i) {
      tokens[i] = token();
      positions[i] = static_cast<int32_t>(i) % static_cast<int32_t>(length);
      targets[i] = (i + k) % 7 == 0 ? kIgnoredLabel : token();
      batch.num_targets += targets[i] != kIgnoredLabel;
    }
    batch.inputs = {tensor_of(tokens, length), tensor_of(positions, length),
                    tensor_of(targets, length)};
    micro_batches_.push_back(batch);
  }
}

TrainerOptions TrainingCase::options() const {
  return {.dtype = dtype,
          .chunk_bytes = num_pieces * kPieceElements * size_of(dtype),
          .gradient_accumulation = accumulation,
          .evaluation_batches = evaluation_batches,
          .groups = groups,
          .group_dtype = group_dtype,
          .schedule = {.micro_batch_order = order,
                       .recompute = recompute,
                       .activations = activations,
                       .sums_on_devices = sums_on_devices,
                       .chains_sums = chains_sums,
                       .copies_weights = copies_weights,
                       .splits_loads = splits_loads,
                       .update = update,
                       .deferred_share = kDeferredShare,
                       .resident_chunks = between == Between::Weights ? UINT32_MAX : 0,
                       .device_updates = between == Between::State ? UINT32_MAX : 0,
                       .kept_sums = memory == Memory::Between ? 2u : 0u},
          .delayed_updates = delayed_updates,
          .speculates_late = speculates_late,
          .max_grad_norm = clip ? max_norm.value_or(kBitingNorm) : 0,
          .dropout = dropout};
}

std::string to_string(const TrainingCase& run) {
  static constexpr std::string_view kMemory[] = {"resident", "between", "smallest"};
  static constexpr std::string_view kBetween[] = {"", ", weights resident",
                                                  ", updated on the device"};
  return fmt::format(
      "{} {} accumulate {}: {}, {} pieces a chunk, recompute {}, {} threads, updates {}, {}, "
      "activations {}{}{}{}",
      name_of(run.dtype), run.clip ? "clipped" : "unclipped", run.accumulation,
      kMemory[static_cast<int>(run.memory)], run.num_pieces,
      name_of(run.recompute, static_cast<uint32_t>(run.model.num_layers)), run.num_threads,
      run.delayed_updates                    ? "delayed"
      : run.update == UpdateOrder::Wait      ? "waited for"
      : run.update == UpdateOrder::Speculate ? "speculative"
                                             : "overlapped",
      run.order == MicroBatchOrder::Vertical ? "vertical" : "horizontal",
      run.activations == ActivationPlacement::Offload ? "offloaded" : "on the device",
      kBetween[static_cast<int>(run.between)],
      run.dropout > 0 ? fmt::format(", dropout {:g}", run.dropout) : "",
      run.num_ranks > 1 || run.groups
          ? fmt::format(", {} ranks on {} machines, {} groups{}{}{}{}", run.num_ranks,
                        run.num_machines, run.groups.value_or(run.accumulation),
                        run.sums_on_devices  ? ", sums on devices"
                        : run.copies_weights ? ", copies of weights"
                                             : "",
                        run.chains_sums ? ", sums chained" : "",
                        run.splits_loads ? ", split loads" : "",
                        run.group_dtype == DType::BF16 ? ", rounded" : "")
          : "");
}

std::ostream& operator<<(std::ostream& out, const TrainingCase& run) {
  return out << to_string(run);
}

std::string to_string(const Outcome& o) {
  return fmt::format("losses {}\nnorms {}\nevaluations {}\nhash {:016x}", o.losses, o.norms,
                     o.evaluations, o.hash);
}

Preparation prepare_case(const Model& model, const TrainingCase& run, uint32_t rank) {
  const TrainerOptions options = run.options();
  Budgets budgets{.device = {.kind = run.device,
                             .num_threads = run.num_threads,
                             .pinned_bytes = run.pinned_bytes},
                  .place = {rank, run.num_ranks, run.num_machines},
                  .peer_access = run.sums_on_devices || run.splits_loads};
  // Bytes for the weights, gradients and moments of two chunks.
  const size_t room = run.between == Between::State ? 2 * 8 * options.chunk_bytes : 0;
  if (run.memory == Memory::Resident && room == 0) return prepare(model, options, budgets);
  const Preparation resident = prepare(model, options, budgets);
  const size_t smallest = resident.smallest_device_bytes, all = resident.full_device_bytes;
  budgets.device_memory = room + (run.memory == Memory::Resident  ? all
                                  : run.memory == Memory::Between ? (smallest + all) / 2
                                                                  : smallest);
  return prepare(model, options, budgets);
}

std::unique_ptr<Device> create_case_device(const Preparation& prepared, const TrainingCase& run) {
  return create_device({.profile = {.kind = run.device,
                                    .num_threads = run.num_threads,
                                    .pinned_bytes = run.pinned_bytes},
                        .memory_bytes = prepared.ledger.total(Tier::Device),
                        .load_bytes_per_s = run.link_bytes_per_s,
                        .store_bytes_per_s = run.link_bytes_per_s,
                        .poison = true});
}

Result train(const Model& model, const Preparation& prepared, const TrainingCase& run,
             const std::function<void(Trainer&, uint32_t)>& before_step, Ranks* ranks) {
  const auto device = create_case_device(prepared, run);
  Trainer trainer(model, *device, prepared, ranks);
  const Data evaluation(run.model, run.length, run.evaluation_batches, kDataSeed);
  Result result;
  for (uint32_t step = 0; step < run.num_steps; ++step) {
    if (before_step) before_step(trainer, step);
    const Data data(run.model, run.length, run.accumulation, kDataSeed + 1 + step);
    const StepResult r =
        trainer.step(prepared.share.micro_batches.of(data.micro_batches()), kLearningRate);
    result.outcome.losses.push_back(r.loss);
    result.outcome.norms.push_back(r.grad_norm);
    result.loaded_bytes = r.loaded_bytes;
    result.speculated.push_back(r.speculated_chunks);
    result.undone.push_back(r.rolled_back_chunks);
    if (run.evaluation_batches > 0) {
      result.outcome.evaluations.push_back(
          trainer.evaluate(prepared.evaluation_batches.of(evaluation.micro_batches())));
    }
  }
  result.outcome.hash = trainer.state_hash();
  return result;
}

namespace {

Result train_rank(const TrainingCase& run, Ranks* ranks) {
  const Gpt2 model(run.model, kMicroBatchSize, run.length, run.dtype);
  const uint32_t rank = ranks == nullptr ? 0 : ranks->rank();
  return train(model, prepare_case(model, run, rank), run, {}, ranks);
}

}  // namespace

Result train(const TrainingCase& run) {
  if (run.num_ranks == 1) return train_rank(run, nullptr);
  ThreadRanks ranks(run.num_ranks, {.ranks_per_machine = run.num_ranks / run.num_machines});
  std::vector<Result> results(run.num_ranks);
  std::vector<std::string> errors(run.num_ranks);
  std::vector<std::thread> threads;
  for (uint32_t rank = 0; rank < run.num_ranks; ++rank) {
    threads.emplace_back([&, rank] {
      try {
        results[rank] = train_rank(run, &ranks.rank(rank));
      } catch (const std::exception& error) {
        errors[rank] = error.what();
        ranks.rank(rank).fail(error.what());
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (uint32_t rank = 0; rank < run.num_ranks; ++rank) {
    if (!errors[rank].empty()) throw std::runtime_error(errors[rank]);
    if (results[rank].outcome == results[0].outcome) continue;
    throw std::runtime_error(fmt::format("rank {} ends with\n{}\nrank 0 with\n{}", rank,
                                         to_string(results[rank].outcome),
                                         to_string(results[0].outcome)));
  }
  return results[0];
}

}  // namespace ebb::test
