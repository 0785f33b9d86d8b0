#include <fmt/format.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdio>
#include <memory>
#include <mutex>
#include <optional>

#include "device/errors.h"
#include "tools/advice.h"
#include "tools/checkpoint.h"
#include "tools/cli.h"
#include "tools/commands.h"
#include "tools/machine.h"
#include "tools/output_paths.h"
#include "tools/printable.h"
#include "tools/rank_setup.h"
#include "tools/train_flags.h"
#include "tools/training_run.h"

namespace ebb {
namespace {

/// The words of the progress (progress.h) that users of PyTorch do not know.
constexpr const char* kProgressNote =
    "In the progress, \"90 % of bound\" means: if kernels, copies and updates, each as fast as in "
    "this step, overlapped perfectly, the step would take 90 % of the measured time. \"stall 5 %\" "
    "means: for 5 % of the step the device waited for copies or updates.";

std::optional<TrainRequest> parse_train(std::vector<std::string> arguments) {
  CommandLine line("Trains a model on text or token files.", "ebb train");
  TrainRequest request;
  add_train_flags(line, request.options);
  line.shorten_help(
      {"preset",     "model",         "dtype",       "data",       "tokenizer",
       "steps",      "epochs",        "eval-split",  "eval-steps", "micro-batch-size",
       "seq-length", "sample-steps",  "lr",          "device",     "gradient-accumulation",
       "save",       "device-memory", "host-memory", "resume",     "log",
       "save-steps", "dry-run"},
      kProgressNote);
  if (!parse_arguments(line, std::move(arguments), true)) return std::nullopt;
  request.resumed = take_up(line, request.options);
  const RunConfig taken = request.resumed ? request.resumed->taken : RunConfig{};
  request.given = given_flags(line, taken);
  naming_origin(request.resumed, [&] { validate(request.options); });
  const FlagPath checkpoint = {"--resume", request.resumed ? request.resumed->checkpoint : ""};
  refuse_same_files(request.options, {.inputs = {checkpoint, config_path(line)}});
  return request;
}

/// Reports the effect of the first signal, through the progress if there is one.
class SignalNotice {
 public:
  /// Reports through `progress` while this object lives.
  class Beside {
   public:
    Beside(SignalNotice& notice, RunProgress& progress) : notice_(notice) {
      notice_.use(&progress);
    }
    ~Beside() { notice_.use(nullptr); }
    Beside(const Beside&) = delete;

   private:
    SignalNotice& notice_;
  };

  void operator()(const char* name) {
    std::lock_guard lock(mutex_);
    const std::string notice =
        fmt::format("{}: the run ends {}; a second signal ends it at once", name,
                    progress_ != nullptr ? "after this step" : "before its first step");
    if (progress_ != nullptr) return progress_->notice(notice);
    say(notice + "\n");
  }

 private:
  void use(RunProgress* progress) {
    std::lock_guard lock(mutex_);
    progress_ = progress;
  }

  std::mutex mutex_;
  RunProgress* progress_ = nullptr;
};

/// Called before anything is measured or planned.
std::unique_ptr<const SaveFolder> take_save_folder(const TrainRequest& request) {
  const TrainOptions& options = request.options;
  if (options.save.empty() || options.dry_run || options.place.rank != 0) return nullptr;
  return std::make_unique<const SaveFolder>(
      options.save, request.resumed ? request.resumed->checkpoint : "",
      request.resumed ? request.resumed->run.position.step : 0);
}

/// "stopped after step 68 of 200; to continue: ebb train --resume 'run'"
std::string stop_notice(const TrainOptions& options, const TrainSetup& setup,
                        const Summary& summary) {
  const std::string stopped =
      fmt::format("stopped after step {} of {}", summary.end.steps, setup.num_steps());
  if (options.save.empty()) return stopped;
  if (summary.end.steps == summary.first_step) return stopped + "; nothing new is saved";
  return fmt::format("{}; to continue: ebb train --resume '{}'", stopped, options.save);
}

/// Advice is given only after runs of this many seconds, because planning it takes some seconds.
constexpr double kWorthAdvice = 10;

int train(const TrainRequest& request, const TrainSetup& setup, const SaveFolder* folder,
          RunFiles files, SignalNotice& notice, const Signals& signals) {
  const bool live = ::isatty(STDERR_FILENO) != 0;
  const RunConfig config = resolved_config(request.given, request.options, setup);
  const PlanContext context = context_of(setup);
  if (!is_finished(request.resumed, setup)) {
    say(printable_lines(format_brief_header(request.options, setup)));
  }
  RunProgress progress(stderr, live, setup.num_steps());
  const SignalNotice::Beside beside(notice, progress);
  for (const std::string& text : resume_notices(request.options, request.resumed, setup, config)) {
    progress.notice(text);
  }
  const Summary summary =
      run_training(request, setup, config, folder, std::move(files), progress, signals);
  progress.finish();
  if (summary.signal != 0) {
    progress.notice(stop_notice(request.options, setup, summary));
  }
  fmt::print("{}", format_summary(setup, summary));
  flush_results();
  if (summary.signal == 0 && setup.ranks == nullptr && summary.seconds >= kWorthAdvice) {
    const auto gain = best_gain(request.options, context);
    progress.notice((gain ? "would help most: " : "") + format_gain(gain));
  }
  return summary.signal != 0 ? exit_code_of(summary.signal) : 0;
}

int train_as_rank(TrainRequest& request, const RankProcesses& processes) {
  TrainOptions& options = request.options;
  take_place(options, processes);
  const auto folder = take_save_folder(request);
  RunFiles files = open_files(options);
  std::signal(SIGPIPE, SIG_IGN);  // a closed reader of the progress must not end the run
  // Must come first: set-up starts threads, which must not receive the signals.
  SignalNotice notice;
  const Signals signals = watch_signals(processes, [&notice](const char* name) { notice(name); });
  const auto setup = set_up_ranks(request, processes, signals);
  if (!setup) return exit_code_of(signal_of_ranks(processes, signals));
  check_end(request.resumed, *setup);
  reset_peak_rss();
  if (!options.dry_run) {
    return train(request, *setup, folder.get(), std::move(files), notice, signals);
  }
  fmt::print("{}", format_header(options, *setup));
  return 0;
}

}  // namespace

int train_command(std::vector<std::string> arguments) {
  auto request = parse_train(arguments);
  if (!request) return 0;
  return run_on_ranks(request->options, "train", arguments, [&](const RankProcesses& processes) {
    return train_as_rank(*request, processes);
  });
}

}  // namespace ebb
