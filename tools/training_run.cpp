#include "tools/training_run.h"

#include <fmt/format.h>

#include <cmath>
#include <filesystem>
#include <limits>
#include <memory>
#include <optional>
#include <span>

#include "device/errors.h"
#include "device/kernels.h"
#include "model_zoo/checkpoint.h"
#include "tools/batches.h"
#include "tools/device_warnings.h"
#include "tools/machine.h"
#include "tools/outdated_rates.h"
#include "tools/printable.h"
#include "tools/rank_processes.h"
#include "tools/rank_reports.h"
#include "tools/run_saver.h"
#include "tools/sampler.h"
#include "tools/set_aside.h"

namespace ebb {
namespace {

/// Computes the loss without gradients, each time on the same first samples.
class Evaluation {
 public:
  Evaluation(const TrainOptions& options, const TrainSetup& setup)
      : setup_(setup), interval_(options.steps_per_evaluation()) {
    if (!setup.eval_data) return;
    const SampleOrder order(setup.eval_data->num_samples(setup.shape.length), DataOrder::Sequential,
                            0);
    batches_.emplace(setup.eval_data->samples(), order, *setup.eval_shape, setup.model->inputs());
  }

  bool due(uint64_t step) const { return batches_ && setup_.is_due(step, interval_); }
  double run(Trainer& trainer) {
    return trainer.evaluate(
        setup_.prepared.evaluation_batches.of(batches_->load_in_first_epoch(0)));
  }

 private:
  const TrainSetup& setup_;
  uint64_t interval_;
  std::optional<Batches> batches_;
};

class TrainingRun {
 public:
  TrainingRun(const TrainRequest& request, const TrainSetup& setup, const RunConfig& config,
              const SaveFolder* folder, RunFiles files, RunProgress& progress,
              const Signals& signals)
      : setup_(setup),
        start_(start_of(request.resumed, setup)),
        logged_run_(logged_run_of_all(request.resumed, setup.ranks)),
        progress_(progress),
        reports_(setup.ranks, progress, setup.notices),
        signals_(signals),
        log_(std::move(files.log)),
        trace_(trace_of_ranks(std::move(files.trace), setup.ranks)),
        rss_before_bytes_(peak_rss_bytes()),
        device_(create_device(setup.device)),
        trainer_(*setup.model, *device_, setup.prepared, setup.ranks),
        batches_(setup.data.samples(), sample_order(request.options, setup), setup.shape,
                 setup.model->inputs()),
        evaluation_(request.options, setup),
        options_(request.options),
        best_(request.resumed ? request.resumed->run.best : BestEvaluation{}),
        step_check_(setup.predicted.seconds, request.options) {
    if (options_.sample_steps) sampler_.emplace(options_, setup);
    if (!request.options.save.empty()) {
      saver_.emplace(request.options, setup, folder, config, logged_run_.run_id, start_,
                     [this](const std::string& text) { progress_.notice(text); });
    }
    report_staging();
    if (request.resumed) {
      read_state(trainer_, state_of(request.resumed->checkpoint));
    } else if (setup.weights) {
      setup.weights->load(trainer_);
    }
    begin_files(request);
  }

  Summary run() {
    Summary summary;
    summary.first_step = summary.end.steps = start_.step;
    try {
      while (goes_on(summary.end.steps)) {
        const StepRecord& record = run_step(summary.end.steps, summary.spent);
        summary.end.steps = record.step;
        summary.seconds += record.step_seconds;
        if (!std::isnan(record.loss)) summary.last_loss = record.loss;
      }
    } catch (const NumericError&) {
      save_what_is_whole();
      throw;
    } catch (const std::exception&) {
      if (setup_.ranks == nullptr) save_what_is_whole();
      throw;
    }
    finish(summary);
    return summary;
  }

 private:
  /// Rank 0 chooses the id of a new run.
  static LoggedRun logged_run_of_all(const std::optional<Resumed>& resumed, Ranks* ranks) {
    LoggedRun run = logged_run(resumed);
    run.run_id = texts_of_ranks(ranks, run.run_id)[0];
    return run;
  }

  /// A signal to any rank stops all of them after the same step. A signal during the last step
  /// changes nothing.
  bool goes_on(uint64_t step) {
    const uint8_t signal =
        reports_.exchange(static_cast<uint8_t>(signals_.pending()), micro_batch_s_);
    if (step == setup_.num_steps() || is_enough()) return false;
    signal_ = signal;
    return signal_ == 0;
  }

  void report_staging() {
    const auto warning = staging_warning(staging_of(*device_, setup_.device), read_memory_limits());
    if (warning) progress_.notice(*warning);
  }

  /// Called last, so that a run that cannot begin leaves existing files unchanged.
  void begin_files(const TrainRequest& request) {
    if (log_) {
      for (const std::string& notice : log_->begin(logged_run_)) progress_.notice(notice);
    }
    if (!trace_) return;
    // An old trace of a resumed run has the earlier steps.
    const bool keeps_old = request.resumed.has_value();
    const auto aside = trace_->begin(logged_run_.run_id, keeps_old, setup_.ranks);
    if (aside) progress_.notice(renamed_text(request.options.trace, *aside));
  }

  static std::string state_of(const std::string& checkpoint) {
    return (std::filesystem::path(checkpoint) / kStateFile).string();
  }

  static SampleOrder sample_order(const TrainOptions& options, const TrainSetup& setup) {
    return {setup.data.num_samples(setup.shape.length), options.order, options.seed};
  }

  const StepRecord& run_step(uint64_t step, SpentTime& spent) {
    const uint64_t position = position_at(step, start_, setup_.shape).num_samples;
    const double learning_rate = setup_.learning_rate.at(step);
    const auto micro_batches = batches_.load(position);
    const bool learns = num_targets(micro_batches) > 0;
    const StepResult result =
        learns ? step_of(step, learning_rate, micro_batches) : step_without_targets();
    whole_step_ = step + 1;
    if (learns) {
      if (const auto notice = step_check_.add(result.step_s)) progress_.notice(*notice);
      const SpentTime of_step = spent_time(setup_.prepared.plan, trainer_.last_step_times(),
                                           result.step_s, result.compute_s);
      spent += of_step;
      micro_batch_s_ = (result.step_s - of_step.waited_s(WaitCause::Ranks)) /
                       setup_.prepared.share.micro_batches.count;
    }
    StepRecord& record =
        last_record_.emplace(make_record(setup_,
                                         {.step = step,
                                          .epoch = batches_.order().epoch(position),
                                          .learning_rate = learning_rate,
                                          .device_peak_bytes = device_->peak_bytes()},
                                         result));
    record.run_id = logged_run_.run_id;
    record.tokens_seen = position_at(record.step, start_, setup_.shape).num_tokens;
    if (setup_.prepared.options.dtype == DType::F16) {
      if (learns) record.loss_scale = result.loss_scale;
      record.skipped_steps = trainer_.num_skipped();
    }
    if (result.skipped) report_skipped(record.step, result.loss_scale);
    if (!learns) report_without_targets(record.step);
    const bool is_best = evaluate(record);
    if (sampler_ && sampler_->due(record.step)) {
      write_sample(record);
    }
    for (const std::string& notice : device_->kernels().take_notices()) progress_.notice(notice);
    if (log_) log_->write(record);
    // After the log: an error of the trace must not cost the line.
    if (trace_ && learns) {
      trace_->add_step(setup_.prepared, trainer_.last_step_times(), record.step, result.step_s);
    }
    progress_.step(record);
    if (record.sample) progress_.notice(fmt::format("step {}: {}", record.step, *record.sample));
    if (!options_.save.empty()) {
      whole_step_.reset();  // a failed save is not repeated
      if (saver_) saver_->check();
      if (is_save_due(record.step) || (is_best && options_.save_best)) save(record.step);
      whole_step_ = record.step;
    }
    return record;
  }

  /// Evaluates if it is time. Returns true if the loss is the lowest so far.
  bool evaluate(StepRecord& record) {
    if (!evaluation_.due(record.step)) return false;
    record.eval_loss = evaluation_.run(trainer_);
    best_ = after_evaluation(best_, record.step, *record.eval_loss);
    if ((options_.save_best || options_.early_stop) && std::isfinite(best_.loss)) {
      record.best_eval_loss = best_.loss;
    }
    return best_.step == record.step;
  }

  /// Whether --early-stop ends the run.
  bool is_enough() const { return options_.early_stop && best_.num_worse >= *options_.early_stop; }

  void report_early_stop(uint64_t step) {
    if (!is_enough() || step == setup_.num_steps()) return;
    progress_.notice(fmt::format(
        "--early-stop {}: the run ends after step {} of {}; {} evaluations had no lower loss than "
        "the {:.4f} of step {}",
        *options_.early_stop, step, setup_.num_steps(), best_.num_worse, best_.loss, best_.step));
  }

  /// Only rank 0 writes a sample, and the others wait for it.
  void write_sample(StepRecord& record) {
    trainer_.flush();
    on_first_rank(setup_.ranks, [&] { record.sample = sampler_->sample(trainer_, record.step); });
  }

  bool is_save_due(uint64_t step) const { return setup_.is_due(step, options_.steps_per_save()); }

  void save(uint64_t step) {
    if (log_) log_->sync();
    save_unsynced(step);
  }

  void save_unsynced(uint64_t step) {
    saver_->save(trainer_, position_at(step, start_, setup_.shape),
                 last_record_ ? to_json(*last_record_) : "", best_);
  }

  StepResult step_of(uint64_t step, double learning_rate,
                     std::span<const MicroBatch> micro_batches) {
    const uint64_t num_skipped = trainer_.num_skipped();
    whole_step_.reset();
    try {
      return trainer_.step(setup_.prepared.share.micro_batches.of(micro_batches), learning_rate);
    } catch (const NumericError&) {
      // Too many steps were skipped. The weights are those before the last step.
      if (trainer_.num_skipped() > num_skipped) whole_step_ = step + 1;
      throw;
    }
  }

  /// Saves after an error that ends the run, if the state is complete. Errors of this save are only
  /// reported. With several ranks, only after an error that all ranks throw.
  void save_what_is_whole() {
    if (!saver_ || !whole_step_) return;
    try {
      save_unsynced(*whole_step_);
      saver_->finish();
    } catch (const std::exception& error) {
      progress_.notice(fmt::format("step {} is not saved: {}", *whole_step_, error.what()));
    }
  }

  void report_skipped(uint64_t step, uint32_t loss_scale) {
    const std::string next =
        loss_scale > 1 ? fmt::format(", the loss scale is halved to {}", loss_scale / 2) : "";
    progress_.notice(fmt::format(
        "step {}: the gradient norm is not finite, so the update is skipped ({} so far){}", step,
        trainer_.num_skipped(), next));
  }

  /// The result of a step without labels. This is no error: a shuffled step may get only samples
  /// without labels by chance.
  static StepResult step_without_targets() {
    return {.loss = std::numeric_limits<double>::quiet_NaN(),
            .grad_norm = std::numeric_limits<double>::quiet_NaN()};
  }

  void report_without_targets(uint64_t step) {
    progress_.notice(fmt::format(
        "step {}: all labels of its {} tokens are {} (ignored): the weights do not change", step,
        setup_.shape.num_tokens(), kIgnoredLabel));
  }

  void finish(Summary& summary) {
    report_early_stop(summary.end.steps);
    if (!options_.save.empty()) save(summary.end.steps);
    if (saver_) saver_->finish();
    summary.signal = signal_;
    summary.num_skipped = trainer_.num_skipped();
    summary.rss_before_bytes = rss_before_bytes_;
    if (sampler_) summary.sample_bytes = sampler_->bytes();
    trainer_.flush();
    on_first_rank(setup_.ranks, [&] { summary.end.state_hash = trainer_.state_hash(); });
    summary.end.peak_rss_bytes = peak_rss_bytes();
    summary.end.run_id = logged_run_.run_id;
    summary.end.parameters = num_parameters(setup_.source.config);
    if (!log_) return;
    log_->write(summary.end);
    if (log_->has_path()) return;
    progress_.notice("the log was removed or renamed during the run: its later lines are lost");
  }

  const TrainSetup& setup_;
  const RunPosition start_;
  const LoggedRun logged_run_;
  RunProgress& progress_;
  RankReports reports_;
  const Signals& signals_;
  const std::unique_ptr<RunLog> log_;
  const std::unique_ptr<ChromeTrace> trace_;
  const size_t rss_before_bytes_;
  std::unique_ptr<Device> device_;
  Trainer trainer_;
  Batches batches_;
  Evaluation evaluation_;
  const TrainOptions& options_;
  BestEvaluation best_;
  StepCheck step_check_;
  std::optional<Sampler> sampler_;
  std::optional<StepRecord> last_record_;
  uint8_t signal_ = 0;                  // that stopped the run; 0: none
  double micro_batch_s_ = 0;            // of the last step, without waits for other ranks
  std::optional<uint64_t> whole_step_;  // the step of the trainer's state; none if a step threw
  std::optional<RunSaver> saver_;       // last, because it reads the trainer
};

}  // namespace

RunFiles open_files(const TrainOptions& options) {
  RunFiles files;
  if (options.dry_run || options.place.rank != 0) return files;
  if (!options.log.empty()) files.log = std::make_unique<RunLog>(options.log);
  if (!options.trace.empty()) files.trace = std::make_unique<ChromeTrace>(options.trace);
  return files;
}

Summary run_training(const TrainRequest& request, const TrainSetup& setup, const RunConfig& config,
                     const SaveFolder* folder, RunFiles files, RunProgress& progress,
                     const Signals& signals) {
  return TrainingRun(request, setup, config, folder, std::move(files), progress, signals).run();
}

}  // namespace ebb
