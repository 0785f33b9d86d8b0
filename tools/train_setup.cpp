#include "tools/train_setup.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <utility>

#include "device/errors.h"
#include "device/kernels.h"
#include "system/cores.h"
#include "tools/cli.h"
#include "tools/flag_values.h"
#include "tools/machine.h"
#include "tools/option_flags.h"
#include "tools/outdated_rates.h"
#include "tools/rank_processes.h"

namespace ebb {
namespace {

constexpr uint64_t kDefaultSteps = 100;
constexpr int64_t kDefaultLength = 1024;

int64_t sequence_length(const TrainOptions& options, const ModelSource& source) {
  const int64_t positions = sizes_of(source.config).max_positions;
  const auto length = options.seq_length ? static_cast<int64_t>(*options.seq_length)
                                         : std::min(kDefaultLength, positions);
  if (length <= positions) return length;
  throw_bad_value(
      "--seq-length", fmt::to_string(length),
      fmt::format("a whole number from 1 to the {} positions of '{}'", positions, source.name));
}

/// Token data without labels can only train models that predict the next token.
void check_targets(const TrainOptions& options, const ModelSource& source) {
  if (predicts_next_token(source.config)) return;
  const bool evaluates = !options.eval_data.empty();
  if (!options.labels.empty() && (!evaluates || !options.eval_labels.empty())) return;
  throw ConfigError(fmt::format(
      "{} {}: a masked-language model learns from labels, and token data has none; give {} FILE "
      "(int32, one label for each token, {} = ignored), or choose a model that predicts "
      "the next token (`ebb models` lists presets)",
      options.model.empty() ? "--preset" : "--model", source.name,
      options.labels.empty() ? "--labels" : "--eval-labels", kIgnoredLabel));
}

uint64_t number_of_steps(const TrainOptions& options, uint64_t num_samples,
                         const BatchShape& shape) {
  if (!options.epochs) return options.steps.value_or(kDefaultSteps);
  if (*options.epochs > INT64_MAX / num_samples) {
    throw_bad_value(
        "--epochs", fmt::to_string(*options.epochs),
        fmt::format("at most {} with {} samples", INT64_MAX / num_samples, num_samples));
  }
  const uint64_t samples = *options.epochs * num_samples;
  return (samples + shape.num_samples() - 1) / shape.num_samples();
}

LearningRate learning_rate(const TrainOptions& options, uint64_t num_steps) {
  const double ratio = options.warmup_ratio.value_or(0);
  return {
      .peak = options.peak_learning_rate(),
      .minimum = options.final_learning_rate(),
      .warmup_steps = options.warmup_ratio
                          ? static_cast<uint64_t>(std::ceil(ratio * static_cast<double>(num_steps)))
                          : options.warmup_steps.value_or(0),
      .num_steps = num_steps,
      .shape = options.lr_schedule};
}

/// Micro-batches of an evaluation, at most as many as the data fills.
BatchShape evaluation_shape(const TrainOptions& options, const RunData& data, BatchShape shape) {
  const uint64_t available = num_batches_for(data.num_samples(shape.length), shape.batch_size);
  shape.num_batches = static_cast<int64_t>(std::min(options.batches_per_evaluation(), available));
  return shape;
}

/// Every evaluation uses the same first samples. They must have at least one label.
void check_evaluation(const TrainSetup& setup) {
  const RunData& data = *setup.eval_data;
  const LabelFile* const labels = data.annotations.labels.get();
  if (labels == nullptr) return;
  const auto length = static_cast<uint64_t>(setup.eval_shape->length);
  const uint64_t num_samples =
      std::min(setup.eval_shape->num_samples(), data.num_samples(setup.eval_shape->length));
  for (uint64_t i = 0; i < num_samples; ++i) {
    const uint64_t sample = data.chosen ? data.chosen->at(i) : i;
    if (labels->num_targets(sample * length, length) > 0) return;
  }
  throw ConfigError(
      fmt::format("{} '{}': the labels of all {} tokens of an evaluation are {} (ignored); give "
                  "more --eval-batches, or other data",
                  data.chosen ? "--labels" : "--eval-labels", labels->path(), num_samples * length,
                  kIgnoredLabel));
}

void append(std::vector<std::string>& all, std::vector<std::string> more) {
  std::ranges::move(more, std::back_inserter(all));
}

void open_all_data(const TrainOptions& options, TrainSetup& setup) {
  setup.data = open_run_data(training_data(options), setup.source, setup.shape,
                             static_cast<uint64_t>(setup.shape.batch_size));
  setup.notices = options.text.notices;
  append(setup.notices, setup.data.notices);
  if (!options.evaluates()) return;
  if (options.eval_split) {
    setup.eval_data = hold_out(setup.data, setup.shape, *options.eval_split);
  } else {
    setup.eval_data = open_run_data(evaluation_data(options), setup.source, setup.shape, 1);
    append(setup.notices, setup.eval_data->notices);
    append(setup.notices,
           evaluation_notices(options, *setup.data.tokens, *setup.eval_data->tokens));
  }
  setup.eval_shape = evaluation_shape(options, *setup.eval_data, setup.shape);
  check_evaluation(setup);
}

/// Values that are possible and probably not meant.
std::vector<std::string> flag_notices(const TrainOptions& options, const LearningRate& rate) {
  std::vector<std::string> notices;
  const auto cores = static_cast<uint64_t>(num_usable_cores());
  if (options.threads > cores) {
    notices.push_back(
        fmt::format("--threads {}: this process may use {} cores, and more threads than cores "
                    "make a run slower",
                    options.threads, cores));
  }
  if (rate.warmup_steps > rate.num_steps) {
    notices.push_back(
        fmt::format("--warmup-steps {}: the run has {} steps, so the learning rate does not reach "
                    "--lr {}",
                    rate.warmup_steps, rate.num_steps, rate.peak));
  }
  append(notices, host_memory_notices(options));
  return notices;
}

/// Emulated compute runs on the host, even if the machine has a GPU.
DeviceKind device_kind(const TrainOptions& options) {
  const bool may_compute = options.device == DeviceChoice::Auto && !options.emulate_compute;
  if (may_compute && why_no_cuda().empty()) return DeviceKind::Cuda;
  return options.device == DeviceChoice::Cuda ? DeviceKind::Cuda : DeviceKind::Host;
}

/// All ranks plan with the same budgets, of each the smallest.
void take_smallest_budgets(Ranks& ranks, Budgets& budgets) {
  for (std::optional<size_t>* const budget :
       {&budgets.device_memory, &budgets.host_memory, &budgets.total_memory}) {
    const size_t least = std::ranges::min(all_of_ranks(ranks, budget->value_or(SIZE_MAX)));
    if (*budget) *budget = least;
  }
}

/// The rates of the machine for all of its ranks. A rank measures with the cores that it may use,
/// which a launcher or several NUMA nodes limit, or with --threads.
Machine whole_machine(const TrainOptions& options, const Machine& measured) {
  const bool uses_flag =
      options.threads > 0 && options.threads <= static_cast<uint64_t>(num_usable_cores());
  const double num_ranks = options.place.ranks_per_machine();
  const double measured_for = uses_flag ? num_ranks : options.ranks_on_cores;
  return machine_of_rank(measured, measured_for / num_ranks);
}

/// Each rank computes as in a run of its own. The first one also plans for the others, because it
/// prints the prediction.
StepPrediction predict(const TrainSetup& setup, const Budgets& budgets) {
  const Preparation& p = setup.prepared;
  StepPrediction predicted{.seconds = p.candidates[p.chosen].seconds,
                           .bound = p.candidates[p.chosen].bound};
  if (setup.ranks == nullptr || predicted.seconds == 0) return predicted;
  on_first_rank(setup.ranks, [&] {
    predicted = predict_step(p, prepare_others(p, *setup.model, budgets), setup.rates.machine);
  });
  return predicted;
}

}  // namespace

RankPlace planned_place(const TrainOptions& options) {
  if (options.place.num_ranks == 1) {
    return {.num_ranks = std::max(uint32_t{1}, static_cast<uint32_t>(options.ranks)),
            .num_machines = static_cast<uint32_t>(options.nodes)};
  }
  return {.num_ranks = options.place.num_ranks, .num_machines = options.place.num_machines};
}

size_t share_of_rank(size_t whole, const TrainOptions& options) {
  return whole / planned_place(options).ranks_per_machine();
}

void plan_run(const TrainOptions& options, TrainSetup& setup) {
  on_first_rank(setup.ranks, [&] {
    setup.rates = measured_rates(options, whole_device_options(options));
    setup.rates.machine = whole_machine(options, setup.rates.machine);
    setup.rates.machine.network_bytes_per_s = options.network_bytes_per_s;
  });
  if (setup.ranks != nullptr) {
    setup.rates.machine = all_of_ranks(*setup.ranks, setup.rates.machine)[0];
  }
  if (const auto notice = busy_notice(setup.rates.other_load, options)) {
    setup.notices.push_back(*notice);
  }
  const uint32_t evaluation_batches =
      setup.eval_shape ? static_cast<uint32_t>(setup.eval_shape->num_batches) : 0;
  const TrainerOptions wanted = trainer_options(options, setup.shape, evaluation_batches,
                                                !setup.source.has_weights && !setup.restores);
  Budgets budgets = budgets_of(options, setup.device);
  if (setup.ranks != nullptr) {
    take_smallest_budgets(*setup.ranks, budgets);
    budgets.peer_access = have_peer_access(*setup.ranks, setup.device);
  }
  setup.prepared = prepare(*setup.model, wanted, budgets, setup.rates.machine);
  setup.predicted = predict(setup, budgets);
  setup.device.memory_bytes =
      options.device_memory.value_or(setup.prepared.ledger.total(Tier::Device));
}

std::string why_no_cuda() {
  const CudaProbe probe = probe_cuda();
  if (probe.devices.empty()) return with_flags(probe.note);
  try {
    create_device({.profile = {.kind = DeviceKind::Cuda, .attention = AttentionKernels::Ebb}});
  } catch (const ConfigError& error) {
    return with_flags(error.what());
  }
  return {};
}

std::vector<std::string> host_memory_notices(const TrainOptions& options) {
  const size_t usable = read_memory_limits().usable_bytes();
  if (options.host_memory.value_or(0) <= usable) return {};
  return {fmt::format(
      "--host-memory {}: {} of host memory is available now; if the run needs more, the system may "
      "end it",
      format_bytes(*options.host_memory), format_bytes(usable))};
}

std::string attention_text(const DeviceOptions& device) {
  const bool is_ours = device.profile.attention != AttentionKernels::Cudnn;
  return ", attention by " + (is_ours ? "Ebb's kernels" : probe_cuda().attention_library);
}

void say_notices(Device& device) {
  for (const std::string& notice : device.kernels().take_notices()) say(notice + "\n");
}

ModelSource model_source(const TrainOptions& options) {
  const TrainOptions::Text& text = options.text;
  if (options.model.empty()) {
    return text.vocabulary == 0 ? preset_source(options.preset)
                                : preset_source(options.preset, text.tokenizer, text.vocabulary);
  }
  ModelSource source = folder_source(options.model, options.random_init);
  if (!text.tokenizer.empty()) source.tokenizer = text.tokenizer;
  return source;
}

BatchShape batch_shape(const TrainOptions& options, const ModelSource& source) {
  return {.num_batches = static_cast<int64_t>(options.gradient_accumulation),
          .batch_size = static_cast<int64_t>(options.micro_batch_size),
          .length = sequence_length(options, source)};
}

namespace {

/// The attention kernels that the run uses. A checkpoint records them, even if no flag gave them.
/// cuDNN is not probed if no layer can use its kernels.
std::optional<AttentionKernels> attention_kernels(const TrainOptions& options, DeviceKind device) {
  if (options.attention || device == DeviceKind::Host) return options.attention;
  const bool is_ours = options.dtype == DType::F32 || options.dropout > 0 || options.is_packed() ||
                       probe_cuda().attention_library.empty();
  return is_ours ? AttentionKernels::Ebb : AttentionKernels::Cudnn;
}

int cuda_index(const TrainOptions& options, DeviceKind device) {
  if (device != DeviceKind::Cuda) {
    if (options.devices.empty()) return 0;
    throw ConfigError("--devices chooses GPUs, and this run uses none: leave it out");
  }
  return gpu_of_rank(options.devices, options.place, probe_cuda().devices.size());
}

/// Those of this rank.
int num_threads(const TrainOptions& options) {
  const auto of_machine = static_cast<int>(options.threads);
  const auto num_ranks = static_cast<int>(options.place.ranks_per_machine());
  return std::max(1, of_machine > 0
                         ? of_machine / num_ranks
                         : num_usable_cores() / static_cast<int>(options.ranks_on_cores));
}

}  // namespace

int gpu_of_rank(std::span<const int> chosen, const RankPlace& place, size_t num_gpus) {
  for (const int gpu : chosen) {
    if (static_cast<size_t>(gpu) < num_gpus) continue;
    throw ConfigError(
        fmt::format("--devices {}: this machine has {} GPUs, numbered from 0; `ebb "
                    "devices` lists them",
                    fmt::join(chosen, ","), num_gpus));
  }
  const size_t rank_here = place.rank % place.ranks_per_machine();
  if (chosen.empty()) return static_cast<int>(rank_here % std::max<size_t>(1, num_gpus));
  return chosen[rank_here % chosen.size()];
}

DeviceOptions device_options(const TrainOptions& options) {
  const DeviceKind kind = device_kind(options);
  return {.profile = {.kind = kind,
                      .num_threads = num_threads(options),
                      .attention = attention_kernels(options, kind),
                      .pinned_bytes =
                          options.pinned ? share_of_rank(*options.pinned, options) : SIZE_MAX},
          .load_bytes_per_s = options.link.load_bytes_per_s,
          .store_bytes_per_s = options.link.store_bytes_per_s,
          .arithmetic = choose_arithmetic(options.arithmetic, this_processor()),
          .emulate_compute = options.emulate_compute,
          .cuda_index = cuda_index(options, kind)};
}

DeviceOptions whole_device_options(const TrainOptions& options) {
  TrainOptions whole = options;
  whole.place = {};
  whole.ranks_on_cores = 1;
  return device_options(whole);
}

size_t default_host_memory(DeviceKind device) {
  const size_t usable_bytes = read_memory_limits().usable_bytes();
  if (device == DeviceKind::Host) return usable_bytes;
  return usable_bytes - std::min(usable_bytes / 4, size_t{2} << 30);
}

size_t total_memory(const TrainOptions& options, size_t available_bytes) {
  const size_t host_bytes = options.host_memory.value_or(0);
  if (host_bytes <= available_bytes) return available_bytes;
  return host_bytes + std::min(options.device_memory.value_or(0), SIZE_MAX - host_bytes);
}

Budgets budgets_of(const TrainOptions& options, const DeviceOptions& device) {
  const size_t default_bytes = default_host_memory(device.profile.kind);
  Budgets budgets = {
      .device_memory = options.device_memory,
      .host_memory = share_of_rank(options.host_memory.value_or(default_bytes), options),
      .device = device.profile,
      .place = options.place};
  if (device.profile.kind == DeviceKind::Host) {
    budgets.total_memory = share_of_rank(total_memory(options, default_bytes), options);
  } else if (!budgets.device_memory) {
    budgets.device_memory = create_device(device)->info().memory_bytes;  // what is free
  }
  return budgets;
}

MachineRates measured_rates(const TrainOptions& options, const DeviceOptions& device, Kept kept) {
  return machine_rates(device, options.dtype, options.gradient_dtype.value_or(options.dtype),
                       cache_folder(), kept);
}

TrainerOptions trainer_options(const TrainOptions& options, const BatchShape& shape,
                               uint32_t evaluation_batches, bool random_weights) {
  return {.dtype = options.dtype,
          .gradient_dtype = options.gradient_dtype,
          .chunk_bytes = options.chunk_size,
          .gradient_accumulation = static_cast<uint32_t>(shape.num_batches),
          .evaluation_batches = evaluation_batches,
          .groups = options.groups,
          .group_dtype = options.group_dtype,
          .schedule = options.schedule,
          .delayed_updates = options.delayed_updates,
          .adam = {.beta1 = options.beta1,
                   .beta2 = options.beta2,
                   .epsilon = options.epsilon,
                   .weight_decay = options.decay()},
          .max_grad_norm = static_cast<float>(options.max_grad_norm),
          .dropout = static_cast<float>(options.dropout),
          .seed = options.seed,
          .random_weights = random_weights};
}

TrainSetup set_up(const TrainOptions& options, bool restores) {
  TrainSetup setup;
  setup.restores = restores;
  setup.source = model_source(options);
  check_targets(options, setup.source);
  setup.shape = batch_shape(options, setup.source);
  setup.model = create_model(setup.source.config,
                             {.batch_size = setup.shape.batch_size,
                              .length = setup.shape.length,
                              .packed = options.is_packed()},
                             options.dtype);
  if (setup.source.has_weights && !restores) {
    setup.weights = std::make_unique<const SourceWeights>(setup.source, *setup.model);
  }
  setup.device = device_options(options);
  open_all_data(options, setup);
  if (setup.weights) append(setup.notices, setup.weights->notices());
  setup.learning_rate = learning_rate(
      options, number_of_steps(options, setup.data.num_samples(setup.shape.length), setup.shape));
  append(setup.notices, flag_notices(options, setup.learning_rate));
  return setup;
}

}  // namespace ebb
