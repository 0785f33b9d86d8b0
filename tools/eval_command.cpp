// ebb eval: mean loss and perplexity of a model over data, and files of logits and
// log-probabilities.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <memory>
#include <numeric>
#include <optional>
#include <vector>

#include "device/errors.h"
#include "io/npy_file.h"
#include "tools/batches.h"
#include "tools/cli.h"
#include "tools/commands.h"
#include "tools/flag_setters.h"
#include "tools/inference_setup.h"
#include "tools/output_paths.h"
#include "tools/signals.h"
#include "tools/text_data.h"
#include "tools/train_flags.h"
#include "tools/train_setup.h"

namespace ebb {
namespace {

struct EvalOptions {
  TrainOptions run;
  std::optional<uint64_t> num_batches;  ///< all
  std::string logits, log_probs;        ///< files; empty: none
};

std::optional<EvalOptions> parse_eval(std::vector<std::string> arguments) {
  CommandLine line("Measures the mean loss and perplexity of a model on data.", "ebb eval");
  EvalOptions options;
  add_inference_flags(line, options.run);
  add_evaluated_data_flags(line, options.run);
  FlagGroup data{line, "Data"}, output{line, "Output"};
  data.add("--eval-batches", "N [all]", "evaluate only the first N micro-batches",
           setters::whole(options.num_batches, 1));
  output.add("--logits", "FILE.npy", "write the logits of the first micro-batch (B, T, V) in fp32",
             setters::text(options.logits));
  output.add("--log-probs", "FILE.npy",
             "write the summed log-probability of each sample's labels in fp64",
             setters::text(options.log_probs));
  if (!parse_arguments(line, std::move(arguments), true)) return std::nullopt;
  validate_inference(options.run);
  refuse_same_files(options.run, {.inputs = {config_path(line)},
                                  .outputs = {{"--logits", options.logits, kNpyBegins},
                                              {"--log-probs", options.log_probs, kNpyBegins}}});
  if (options.run.data.empty()) {
    throw ConfigError("--data is missing: give text files, folders of text or token files");
  }
  return options;
}

/// Samples in the order of the data. The last micro-batch is filled up with ignored labels.
class Samples {
 public:
  Samples(const SampleSource& source, std::span<const InputSpec> inputs, const BatchShape& shape,
          std::optional<uint64_t> num_batches)
      : shape_(shape),
        num_samples_(number_of_samples(source.tokens, shape, num_batches)),
        batches_(source, SampleOrder(num_samples_, DataOrder::Sequential, 0), shape, inputs) {}

  uint64_t num_samples() const { return num_samples_; }
  uint64_t num_batches() const { return num_batches_for(num_samples_, shape_.batch_size); }
  /// Samples in the micro-batches before this one.
  uint64_t num_before(uint64_t batch) const {
    return std::min(batch * static_cast<uint64_t>(shape_.batch_size), num_samples_);
  }
  /// Samples in a micro-batch.
  int64_t count(uint64_t batch) const {
    const auto size = static_cast<uint64_t>(shape_.batch_size);
    return static_cast<int64_t>(std::min(size, num_samples_ - batch * size));
  }
  MicroBatch load(uint64_t batch) {
    return batches_.load_in_first_epoch(batch * static_cast<uint64_t>(shape_.batch_size))[0];
  }

 private:
  static uint64_t number_of_samples(const TokenData& data, const BatchShape& shape,
                                    std::optional<uint64_t> num_batches) {
    const uint64_t all = data.num_samples(static_cast<size_t>(shape.length));
    if (!num_batches) return all;
    const auto size = static_cast<uint64_t>(shape.batch_size);
    return *num_batches < (all + size - 1) / size ? *num_batches * size : all;
  }

  BatchShape shape_;
  uint64_t num_samples_;
  Batches batches_;
};

/// Shows the progress, only on a terminal.
class EvalProgress {
 public:
  explicit EvalProgress(uint64_t total) : total_(total), live_(::isatty(STDERR_FILENO) != 0) {}
  void show(uint64_t done, double loss) const {
    if (!live_) return;
    say(fmt::format("\r{} of {} micro-batches, loss {:.4f} {}", done, total_, loss,
                    done == total_ ? "\n" : ""));
  }

 private:
  uint64_t total_;
  bool live_;
};

class Evaluation {
 public:
  Evaluation(const EvalOptions& options, const ModelSource& source)
      : options_(options),
        source_(source),
        shape_(shape_of(options.run, source)),
        data_(open_run_data(training_data(options.run), source, shape_, 1)),
        model_(model_of(options.run, source)),
        samples_(data_.samples(), model_->inputs(), shape_, options.num_batches) {}

  /// Returns the exit code. A signal ends the evaluation after a micro-batch, with the result so
  /// far.
  int run(const Signals& signals) {
    open_files();
    const std::vector<ForwardSpec> passes = make_forwards(*model_, shape_);
    LoadedInference loaded = load_inference({options_.run}, source_, passes,
                                            [this](const RunFlags& flags, const Budgets& budgets) {
                                              return plan_of(flags.options, budgets);
                                            });
    say(inference_header(options_.run, source_, loaded));
    say(fmt::format("data    {}\n", samples_text(*data_.tokens, shape_.length)));
    for (const std::string& notice : options_.run.text.notices)
      say(fmt::format("        {}\n", notice));
    for (const std::string& notice : data_.notices) say(fmt::format("        {}\n", notice));
    const EvalProgress progress(samples_.num_batches());
    double total = 0;
    uint64_t num_labels = 0, batch = 0;
    for (; batch < samples_.num_batches() && signals.pending() == 0; ++batch) {
      const MicroBatch micro_batch = samples_.load(batch);
      total += loaded.inference->run(batch == 0 ? 0 : passes.size() - 1, micro_batch);
      num_labels += micro_batch.num_targets;
      if (batch == 0 && logits_) write_logits(*loaded.inference);
      if (log_probs_) write_log_probs(*loaded.inference, batch);
      progress.show(batch + 1, total / static_cast<double>(num_labels));
    }
    say_notices(*loaded.device);
    const bool whole = batch == samples_.num_batches();
    if (!whole)
      say(fmt::format("stopped after micro-batch {} of {}\n", batch, samples_.num_batches()));
    if (whole || num_labels > 0) finish(total / static_cast<double>(num_labels), num_labels, batch);
    return signals.pending() != 0 ? signals.exit_code() : 0;
  }

 private:
  static BatchShape shape_of(const TrainOptions& options, const ModelSource& source) {
    BatchShape shape = batch_shape(options, source);
    shape.num_batches = 1;
    return shape;
  }
  static std::unique_ptr<const Model> model_of(const TrainOptions& options,
                                               const ModelSource& source) {
    const BatchShape shape = batch_shape(options, source);
    return create_model(
        source.config,
        {.batch_size = shape.batch_size, .length = shape.length, .packed = options.is_packed()},
        options.dtype);
  }

  PreparedInference plan_of(const TrainOptions& options, const Budgets& budgets) const {
    const auto model = model_of(options, source_);
    const std::vector<ForwardSpec> passes = make_forwards(*model, shape_of(options, source_));
    return prepare_inference(passes, inference_options(options, source_), budgets);
  }

  int64_t vocabulary() const { return sizes_of(source_.config).vocabulary; }

  /// Writes the logits of the first micro-batch in a separate forward pass.
  std::vector<ForwardSpec> make_forwards(const Model& model, const BatchShape& shape) const {
    const int64_t num_rows = shape.batch_size * shape.length;
    ForwardSpec pass{.model = &model};
    if (log_probs_) pass.num_losses = num_rows;
    if (!logits_) return {pass};
    ForwardSpec first = pass;
    first.logits_rows = num_rows;
    first.num_classes = vocabulary();
    return {first, pass};
  }

  /// Called first, to detect early that a file cannot be written.
  void open_files() {
    if (!options_.logits.empty()) {
      logits_.emplace(options_.logits, std::vector{samples_.count(0), shape_.length, vocabulary()});
    }
    if (!options_.log_probs.empty()) {
      log_probs_.emplace(options_.log_probs,
                         std::vector{static_cast<int64_t>(samples_.num_samples())});
    }
  }

  void write_logits(const Inference& inference) {
    std::vector<float> row(static_cast<size_t>(vocabulary()));
    for (int64_t r = 0; r < samples_.count(0) * shape_.length; ++r) {
      inference.read_logits(r, row);
      logits_->write(static_cast<uint64_t>(r) * row.size(), row);
    }
  }

  void write_log_probs(const Inference& inference, uint64_t batch) {
    const std::span<const float> losses = inference.losses().span<float>();
    std::vector<double> sums;
    const auto length = static_cast<size_t>(shape_.length);
    for (int64_t i = 0; i < samples_.count(batch); ++i) {
      const auto row = losses.subspan(static_cast<size_t>(i) * length, length);
      sums.push_back(-std::accumulate(row.begin(), row.end(), 0.0));
    }
    log_probs_->write(batch * static_cast<uint64_t>(shape_.batch_size), sums);
  }

  /// Prints the results of the first `num_done` micro-batches.
  void finish(double loss, uint64_t num_labels, uint64_t num_done) {
    if (num_labels == 0) {
      throw ConfigError(
          fmt::format("all labels of the first {} samples are {} (ignored): nothing to measure",
                      samples_.num_samples(), kIgnoredLabel));
    }
    if (!std::isfinite(loss)) {
      throw NumericError(
          fmt::format("the mean loss over {} labels is {}: if all weights are finite, try "
                      "--dtype fp32",
                      num_labels, loss));
    }
    const uint64_t num_samples = samples_.num_before(num_done);
    const bool whole = num_samples == samples_.num_samples();
    if (logits_) logits_->commit();
    if (log_probs_ && whole) log_probs_->commit();  // otherwise some are missing
    if (log_probs_ && !whole) say(fmt::format("'{}' is not written\n", options_.log_probs));
    fmt::print("loss {:.17g}\nperplexity {:.17g}\nlabels {}\nsamples {}\n", loss, std::exp(loss),
               num_labels, num_samples);
    if (!whole) fmt::print("partial_of_samples {}\n", samples_.num_samples());
  }

  const EvalOptions& options_;
  const ModelSource& source_;
  const BatchShape shape_;
  const RunData data_;
  const std::unique_ptr<const Model> model_;
  Samples samples_;
  std::optional<NpyFile<float>> logits_;
  std::optional<NpyFile<double>> log_probs_;
};

}  // namespace

int eval_command(std::vector<std::string> arguments) {
  auto options = parse_eval(std::move(arguments));
  if (!options) return 0;
  // Must come first: set-up starts threads, which must not receive the signals.
  const Signals signals([](const char* name) {
    say(fmt::format(
        "{}: the evaluation ends after this micro-batch; a second signal ends it at once\n", name));
  });
  if (!tokenize_text(options->run, [&signals] { return signals.pending() != 0; })) {
    return signals.exit_code();
  }
  const ModelSource source = model_source(options->run);
  if (options->run.labels.empty() && !predicts_next_token(source.config)) {
    throw ConfigError(
        fmt::format("--model {}: a masked-language model needs labels, and token data has none; "
                    "give --labels FILE, or choose a model that predicts the next token",
                    source.name));
  }
  return Evaluation(*options, source).run(signals);
}

}  // namespace ebb
