#include "tools/train_options.h"

#include <fmt/format.h>

#include "device/errors.h"
#include "device/kernel_arguments.h"
#include "tools/flag_values.h"

namespace ebb {
namespace {

void require(bool condition, std::string_view message) {
  if (!condition) throw ConfigError(std::string(message));
}

void validate_data(const TrainOptions& o) {
  require(!o.data.empty(), "--data is missing: give text files, folders of text or token files");
  require(!(o.steps && o.epochs),
          fmt::format("--steps {} and --epochs {} exclude each other: give one of them",
                      o.steps.value_or(0), o.epochs.value_or(0)));
  require(o.eval_data.empty() || !o.eval_split,
          "--eval-split and --eval-data exclude each other: give one of them");
  require(!o.sample_steps || !o.emulate_compute,
          "--sample-steps needs real weights: leave out --emulate-compute");
}

void validate_optimizer(const TrainOptions& o) {
  require(!(o.warmup_ratio && o.warmup_steps),
          fmt::format("--warmup-steps {} and --warmup-ratio {:g} exclude each other: give one",
                      o.warmup_steps.value_or(0), o.warmup_ratio.value_or(0)));
  if (o.final_learning_rate() > o.peak_learning_rate()) {
    throw_bad_value("--min-lr", fmt::to_string(o.final_learning_rate()),
                    fmt::format("a number from 0 to --lr {}", o.peak_learning_rate()));
  }
}

/// A flag that has no effect without another one.
struct Need {
  std::string_view flag;
  bool is_given, is_met;
  std::string_view needed;
};

void validate_needs(const TrainOptions& o) {
  constexpr std::string_view kEvalData = "--eval-data PATH";
  constexpr std::string_view kEvaluation = "--eval-data PATH or --eval-split P%";
  constexpr std::string_view kSave = "--save DIR";
  const bool has_eval_data = !o.eval_data.empty(), saves = !o.save.empty();
  const bool has_prompt = o.sample_prompt != TrainOptions{}.sample_prompt;
  const Need needs[] = {
      {"--eval-labels", !o.eval_labels.empty(), has_eval_data, kEvalData},
      {"--eval-documents", !o.eval_documents.empty(), has_eval_data, kEvalData},
      {"--eval-steps", o.eval_steps.has_value(), o.evaluates(), kEvaluation},
      {"--eval-batches", o.eval_batches.has_value(), o.evaluates(), kEvaluation},
      {"--early-stop", o.early_stop.has_value(), o.evaluates(), kEvaluation},
      {"--save-best", o.save_best, o.evaluates(), kEvaluation},
      {"--sample-prompt", has_prompt, o.sample_steps.has_value(), "--sample-steps N"},
      {"--save-steps", o.save_steps.has_value(), saves, kSave},
      {"--save-keep", o.save_keep.has_value(), saves, kSave},
      {"--save-weights-only", o.save_weights_only, saves, kSave},
      {"--save-best", o.save_best, saves, kSave},
      {"--save-dtype", o.save_dtype.has_value(), saves, kSave}};
  for (const Need& need : needs) {
    require(!need.is_given || need.is_met, fmt::format("{} needs {}", need.flag, need.needed));
  }
}

void validate_types(const TrainOptions& o) {
  require(o.gradient_dtype != DType::F16 || o.dtype == DType::F16,
          fmt::format("--gradient-dtype fp16 needs --dtype fp16, which scales the loss so that "
                      "gradients fit: with --dtype {} try --gradient-dtype {}",
                      name_of(o.dtype), name_of(o.dtype)));
}

void validate_chunk_size(const TrainOptions& o) {
  const size_t piece_bytes = kPieceElements * size_of(o.dtype);
  if (o.chunk_size % piece_bytes == 0) return;
  throw_bad_value("--chunk-size", fmt::format("{} bytes", o.chunk_size),
                  fmt::format("a multiple of {} ({} elements of {}: the piece in which gradient "
                              "norms are summed)",
                              format_bytes(piece_bytes), kPieceElements, name_of(o.dtype)));
}

}  // namespace

bool trains_tokenizer(const TrainOptions& options) {
  return options.tokenizer.starts_with(kTrainPrefix);
}

void validate(const TrainOptions& options) {
  validate_planned(options);
  require(options.network_bytes_per_s == 0 || options.rank_transport == RankTransport::Mpi,
          "--network emulates a network between the ranks of one machine: it needs "
          "--rank-transport mpi");
  validate_data(options);
  validate_optimizer(options);
  validate_needs(options);
}

void validate_planned(const TrainOptions& options) {
  require(!options.preset.empty() || !options.model.empty(),
          "--preset or --model is missing: `ebb models` lists the presets, --model takes a Hugging "
          "Face folder");
  require(options.preset.empty() || options.model.empty(),
          fmt::format("--preset {} and --model {} exclude each other: give one of them",
                      options.preset, options.model));
  require(!options.random_init || !options.model.empty(),
          "--init random needs --model DIR: the weights of a preset are always random");
  validate_types(options);
  validate_chunk_size(options);
  require(options.device != DeviceChoice::Cuda || options.link.load_bytes_per_s == 0,
          "--link emulates a link on the host device: it needs --device host, not cuda");
  require(options.device != DeviceChoice::Cuda || !options.emulate_compute,
          "--emulate-compute needs --device host, not cuda");
}

}  // namespace ebb
