#include <fmt/format.h>

#include <cstdio>
#include <memory>
#include <string_view>
#include <utility>
#include <vector>

#include "device/errors.h"
#include "tools/advice.h"
#include "tools/chrome_trace.h"
#include "tools/cli.h"
#include "tools/commands.h"
#include "tools/html_report.h"
#include "tools/output_paths.h"
#include "tools/run_id.h"
#include "tools/signals.h"
#include "tools/spent_time.h"
#include "tools/text_data.h"
#include "tools/traffic_report.h"
#include "tools/train_flags.h"
#include "tools/train_report.h"
#include "tools/train_setup.h"

namespace ebb {
namespace {

constexpr uint64_t kDefaultSteps = 3;

struct ProfileRequest {
  TrainOptions options;
  std::string html;
};

/// Refuses flags of `ebb train` that have no effect on a profile.
void refuse_lost_flags(const TrainOptions& o) {
  const std::pair<std::string_view, bool> flags[] = {{"--dry-run", o.dry_run},
                                                     {"--resume", o.resume.has_value()},
                                                     {"--save", !o.save.empty()},
                                                     {"--log", !o.log.empty()},
                                                     {"--eval-data", !o.eval_data.empty()},
                                                     {"--eval-split", o.eval_split.has_value()},
                                                     {"--sample-steps", o.sample_steps.has_value()},
                                                     {"--ranks", o.ranks > 0}};
  for (const auto& [flag, given] : flags) {
    if (!given) continue;
    throw ConfigError(fmt::format(
        "{} is for `ebb train`: a profile runs a few steps and keeps none of their results", flag));
  }
}

bool parse_profile(std::vector<std::string> arguments, ProfileRequest& request) {
  CommandLine line(
      "Trains one warm-up step and a few more (--steps [3]), and shows how they spend their time.",
      "ebb profile");
  add_train_flags(line, request.options);
  FlagGroup group{line, "Output"};
  group.add("--html", "FILE", "write a self-contained HTML report of the fastest step",
            [&request](std::string_view, std::string_view text) { request.html = text; });
  if (!parse_arguments(line, std::move(arguments), true)) return false;
  if (!request.options.steps && !request.options.epochs) request.options.steps = kDefaultSteps;
  refuse_lost_flags(request.options);
  validate(request.options);
  refuse_same_files(request.options, {.inputs = {config_path(line)},
                                      .outputs = {{"--html", request.html, kHtmlBegins}}});
  return true;
}

/// The fastest step; none if the profile was stopped before its first step.
struct Profile {
  uint64_t num_steps = 0;
  StepRecord fastest;
  double kernels_s = 0;
  std::vector<OpTime> times;
};

Profile measure(const TrainOptions& options, const TrainSetup& setup, const Signals& signals) {
  const auto trace = options.trace.empty() ? nullptr : std::make_unique<ChromeTrace>(options.trace);
  if (trace) trace->begin(new_run_id());
  const auto device = create_device(setup.device);
  Trainer trainer(*setup.model, *device, setup.prepared);
  if (setup.weights) setup.weights->load(trainer);
  const SampleOrder order(setup.data.num_samples(setup.shape.length), options.order, options.seed);
  Batches batches(setup.data.samples(), order, setup.shape, setup.model->inputs());
  Profile profile;
  for (uint64_t step = 0; step <= setup.num_steps() && signals.pending() == 0; ++step) {
    const uint64_t position = step * setup.shape.num_samples();
    const double learning_rate = setup.learning_rate.at(std::min(step, setup.num_steps() - 1));
    const StepResult result = trainer.step(batches.load(position), learning_rate);
    if (step == 0) continue;  // warm-up
    profile.num_steps = step;
    const auto times = trainer.last_step_times();
    if (trace) trace->add_step(setup.prepared, times, step, result.step_s);
    StepRecord record = make_record(setup,
                                    {.step = step - 1,
                                     .epoch = order.epoch(position),
                                     .learning_rate = learning_rate,
                                     .device_peak_bytes = device->peak_bytes()},
                                    result);
    say(fmt::format("step {}/{}  {:.4f} s, {:.1f} % of bound\n", step, setup.num_steps(),
                    record.step_seconds, 100 * record.bound_share.value_or(0)));
    if (step == 1 || record.step_seconds < profile.fastest.step_seconds) {
      profile.fastest = std::move(record);
      profile.kernels_s = result.compute_s;
      profile.times.assign(times.begin(), times.end());
    }
  }
  say_notices(*device);
  return profile;
}

/// Where the time of the fastest step and the traffic of every step went.
std::string text_of(const Preparation& p, const Profile& profile) {
  const SpentTime spent =
      spent_time(p.plan, profile.times, profile.fastest.step_seconds, profile.kernels_s);
  return fmt::format("fastest step: {}\n{}{}", format_spent(spent),
                     traffic_table(traffic_of(p.plan, *p.layout)),
                     layer_table(StepNames(p.plan, p.trace, *p.layout)));
}

Report report_of(const TrainOptions& options, const TrainSetup& setup, const Profile& profile) {
  const StepRecord& r = profile.fastest;
  const Preparation& p = setup.prepared;
  ReportView measured{.name = "measured",
                      .step_s = r.step_seconds,
                      .bound_s = r.bound_seconds.value_or(0),
                      .bound_by = r.bound_by.value_or("compute"),
                      .times = profile.times,
                      .kernels_s = profile.kernels_s};
  return {.title = fmt::format("{}: step {} of {}", setup.source.name, r.step, setup.num_steps()),
          .facts = header_lines(options, setup),
          .tokens_per_step = setup.shape.num_tokens(),
          .tiles = {{"on the device", static_cast<double>(p.ledger.total(Tier::Device)), "bytes"}},
          .views = {std::move(measured), simulated_view(p, setup.rates.machine)}};
}

}  // namespace

int profile_command(std::vector<std::string> arguments) {
  ProfileRequest request;
  if (!parse_profile(std::move(arguments), request)) return 0;
  // Must come first: set-up starts threads, which must not receive the signals.
  const Signals signals([](const char* name) {
    say(fmt::format("{}: the profile ends after this step; a second signal ends it at once\n",
                    name));
  });
  if (!tokenize_text(request.options, [&signals] { return signals.pending() != 0; })) {
    return signals.exit_code();
  }
  TrainSetup setup = set_up(request.options);
  plan_or_advise(request.options, setup);
  say(format_header(request.options, setup));
  const Profile profile = measure(request.options, setup, signals);
  const bool stopped = signals.pending() != 0;
  if (stopped) {
    say(fmt::format("stopped after step {} of {}\n", profile.num_steps, setup.num_steps()));
  }
  if (profile.num_steps > 0) fmt::print("{}", text_of(setup.prepared, profile));
  if (!request.html.empty() && profile.num_steps > 0) {
    write_report(request.html, report_of(request.options, setup, profile), setup.prepared);
    fmt::print("report: {}\n", request.html);
  }
  if (!request.options.trace.empty()) fmt::print("trace: {}\n", request.options.trace);
  return stopped ? signals.exit_code() : 0;
}

}  // namespace ebb
