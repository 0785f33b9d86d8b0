#include <fmt/format.h>
#include <unistd.h>

#include <cstdio>
#include <memory>
#include <mutex>
#include <optional>

#include "tools/batches.h"
#include "tools/chrome_trace.h"
#include "tools/cli.h"
#include "tools/commands.h"
#include "tools/machine.h"
#include "tools/progress.h"
#include "tools/run_log.h"
#include "tools/signals.h"
#include "tools/train_options.h"
#include "tools/train_report.h"
#include "tools/train_setup.h"

namespace ebb {
namespace {

std::optional<TrainOptions> parse_train(std::vector<std::string> arguments) {
  CLI::App app("Trains a model on text or token files.", "ebb train");
  TrainOptions options;
  add_train_flags(app, options);
  if (!parse_arguments(app, std::move(arguments), true)) return std::nullopt;
  settle_defaults(options);
  validate(options);
  return options;
}

/// Loss without gradients, over the same first samples each time.
class Evaluation {
 public:
  Evaluation(const TrainOptions& options, const TrainSetup& setup) : interval_(options.eval_steps) {
    if (!setup.eval_data) return;
    const auto length = static_cast<size_t>(setup.shape.length);
    const SampleOrder order(setup.eval_data->num_samples(length), DataOrder::Sequential, 0);
    batches_.emplace(*setup.eval_data, order, *setup.eval_shape);
  }

  bool due(uint64_t step, uint64_t num_steps) const {
    return batches_ && (step % interval_ == 0 || step == num_steps);
  }
  double run(Trainer& trainer) { return trainer.evaluate(batches_->load(0)); }

 private:
  uint64_t interval_;
  std::optional<Batches> batches_;
};

class TrainingRun {
 public:
  TrainingRun(const TrainOptions& options, const TrainSetup& setup, Progress& progress,
              const Signals& signals)
      : setup_(setup),
        progress_(progress),
        signals_(signals),
        log_(open_log(options)),
        trace_(options.trace.empty() ? nullptr : std::make_unique<ChromeTrace>(options.trace)),
        rss_before_bytes_(peak_rss_bytes()),
        device_(create_device(setup.device)),
        trainer_(*setup.model, *device_, setup.prepared),
        batches_(*setup.data, sample_order(options, setup), setup.shape),
        evaluation_(options, setup) {
    if (setup.weights) setup.weights->load(trainer_);
  }

  Summary run() {
    Summary summary;
    while (summary.end.steps < setup_.num_steps() && signals_.pending() == 0) {
      const StepRecord record = run_step(summary.end.steps);
      summary.end.steps = record.step;
      summary.seconds += record.step_seconds;
      summary.last_loss = record.loss;
    }
    finish(summary);
    return summary;
  }

 private:
  static std::unique_ptr<RunLog> open_log(const TrainOptions& options) {
    return options.log.empty() ? nullptr : std::make_unique<RunLog>(options.log);
  }

  static SampleOrder sample_order(const TrainOptions& options, const TrainSetup& setup) {
    const auto length = static_cast<size_t>(setup.shape.length);
    return {setup.data->num_samples(length), options.order, options.seed};
  }

  StepRecord run_step(uint64_t step) {
    const uint64_t position = step * setup_.shape.num_samples();
    const double learning_rate = setup_.learning_rate.at(step);
    const StepResult result = trainer_.step(batches_.load(position), learning_rate);
    if (trace_) {
      trace_->add_step(setup_.prepared, trainer_.last_step_times(), step + 1, result.step_s);
    }
    StepRecord record = make_record(setup_,
                                    {.step = step,
                                     .epoch = batches_.order().epoch(position),
                                     .learning_rate = learning_rate,
                                     .device_peak_bytes = device_->peak_bytes()},
                                    result);
    if (result.skipped) report_skipped(record.step);
    if (evaluation_.due(record.step, setup_.num_steps())) {
      record.eval_loss = evaluation_.run(trainer_);
    }
    if (log_) log_->write(record);
    progress_.step(record);
    return record;
  }

  void report_skipped(uint64_t step) {
    progress_.notice(fmt::format(
        "step {}: the gradient's norm is not a number, the update was skipped ({} so far)", step,
        trainer_.num_skipped()));
  }

  void finish(Summary& summary) {
    summary.num_skipped = trainer_.num_skipped();
    summary.rss_before_bytes = rss_before_bytes_;
    summary.end.state_hash = trainer_.state_hash();
    summary.end.peak_rss_bytes = peak_rss_bytes();
    summary.end.parameters = num_parameters(setup_.preset.config);
    if (log_) log_->write(summary.end);
  }

  const TrainSetup& setup_;
  Progress& progress_;
  const Signals& signals_;
  const std::unique_ptr<RunLog>
      log_;  // before the memory: a log that cannot be written shows at once
  const std::unique_ptr<ChromeTrace> trace_;
  const size_t rss_before_bytes_;
  std::unique_ptr<Device> device_;
  Trainer trainer_;
  Batches batches_;
  Evaluation evaluation_;
};

/// Says what the first signal does: beside the progress, once there is one.
class SignalNotice {
 public:
  /// Beside this progress, as long as it lives.
  class Beside {
   public:
    Beside(SignalNotice& notice, Progress& progress) : notice_(notice) { notice_.use(&progress); }
    ~Beside() { notice_.use(nullptr); }
    Beside(const Beside&) = delete;

   private:
    SignalNotice& notice_;
  };

  void operator()(const char* name) {
    std::lock_guard lock(mutex_);
    const std::string notice =
        fmt::format("{}: the run ends {}; once more ends it at once", name,
                    progress_ != nullptr ? "after this step" : "before its first step");
    if (progress_ != nullptr) return progress_->notice(notice);
    fmt::print(stderr, "{}\n", notice);
  }

 private:
  void use(Progress* progress) {
    std::lock_guard lock(mutex_);
    progress_ = progress;
  }

  std::mutex mutex_;
  Progress* progress_ = nullptr;
};

int train(const TrainOptions& options, const TrainSetup& setup, SignalNotice& notice,
          const Signals& signals) {
  const bool live = ::isatty(STDERR_FILENO) != 0;
  fmt::print(stderr, "{}", format_header(options, setup));
  Progress progress(stderr, live, setup.num_steps());
  const SignalNotice::Beside beside(notice, progress);
  const Summary summary = TrainingRun(options, setup, progress, signals).run();
  progress.finish();
  if (signals.pending() != 0) {
    progress.notice(
        fmt::format("stopped after step {} of {}", summary.end.steps, setup.num_steps()));
  }
  fmt::print("{}", format_summary(setup, summary));
  return signals.pending() != 0 ? signals.exit_code() : 0;
}

}  // namespace

int train_command(std::vector<std::string> arguments) {
  const auto options = parse_train(std::move(arguments));
  if (!options) return 0;
  // First of all: what sets up has threads, and they must not take the signals.
  SignalNotice notice;
  const Signals signals([&notice](const char* name) { notice(name); });
  const TrainSetup setup = set_up(*options);
  if (signals.pending() != 0) return signals.exit_code();
  reset_peak_rss();
  if (!options->dry_run) return train(*options, setup, notice, signals);
  fmt::print("{}", format_header(*options, setup));
  return 0;
}

}  // namespace ebb
