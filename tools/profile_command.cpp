#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <limits>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "device/errors.h"
#include "io/new_file.h"
#include "tools/chrome_trace.h"
#include "tools/cli.h"
#include "tools/commands.h"
#include "tools/html_report.h"
#include "tools/output_paths.h"
#include "tools/rank_setup.h"
#include "tools/run_config.h"
#include "tools/run_id.h"
#include "tools/signals.h"
#include "tools/spent_time.h"
#include "tools/traffic_report.h"
#include "tools/train_flags.h"
#include "tools/train_report.h"
#include "tools/train_setup.h"

namespace ebb {
namespace {

constexpr uint64_t kDefaultSteps = 3;

struct ProfileRequest {
  TrainRequest run;
  std::string html;
  FlagPath config;
};

/// Refuses flags of `ebb train` that have no effect on a profile.
void refuse_lost_flags(const TrainOptions& o) {
  const std::pair<std::string_view, bool> flags[] = {
      {"--dry-run", o.dry_run},
      {"--resume", o.resume.has_value()},
      {"--save", !o.save.empty()},
      {"--log", !o.log.empty()},
      {"--eval-data", !o.eval_data.empty()},
      {"--eval-split", o.eval_split.has_value()},
      {"--sample-steps", o.sample_steps.has_value()}};
  for (const auto& [flag, given] : flags) {
    if (!given) continue;
    throw ConfigError(fmt::format(
        "{} is for `ebb train`: a profile runs a few steps and keeps none of their results", flag));
  }
}

std::optional<ProfileRequest> parse_profile(std::vector<std::string> arguments) {
  CommandLine line(
      "Trains one warm-up step and a few more (--steps [3]), and shows how they spend their time.",
      "ebb profile");
  ProfileRequest request;
  TrainOptions& options = request.run.options;
  add_train_flags(line, options);
  FlagGroup group{line, "Output"};
  group.add("--html", "FILE",
            "write a self-contained HTML report of the fastest step; one for each rank",
            [&request](std::string_view, std::string_view text) { request.html = text; });
  if (!parse_arguments(line, std::move(arguments), true)) return std::nullopt;
  if (!options.steps && !options.epochs) options.steps = kDefaultSteps;
  refuse_lost_flags(options);
  request.run.given = given_flags(line, {});
  validate(options);
  request.config = config_path(line);
  return request;
}

/// "report.html", and for other ranks "report.rank1.html"
std::string page_of(uint32_t rank, const std::string& html) {
  if (rank == 0 || html.empty()) return html;
  std::filesystem::path path = html;
  const std::string ending = fmt::format(".rank{}{}", rank, path.extension().string());
  return path.replace_extension(ending).string();
}

void check_paths(const ProfileRequest& request, uint32_t num_ranks) {
  MorePaths paths{.inputs = {request.config}};
  for (uint32_t rank = 0; rank < num_ranks; ++rank) {
    paths.outputs.push_back({"--html", page_of(rank, request.html), kHtmlBegins});
  }
  refuse_same_files(request.run.options, paths);
}

/// The fastest step of all ranks together; none if the profile was stopped before its first step.
struct Profile {
  uint64_t num_steps = 0;
  StepRecord fastest;
  double kernels_s = 0;
  std::vector<OpTime> times;
};

Profile measure(const TrainOptions& options, const TrainSetup& setup,
                const RankProcesses& processes, const Signals& signals) {
  Ranks* const ranks = setup.ranks;
  const auto trace = trace_of_ranks(open_files(options).trace, ranks);
  if (trace) trace->begin(new_run_id(), false, ranks);
  const auto device = create_device(setup.device);
  Trainer trainer(*setup.model, *device, setup.prepared, ranks);
  if (setup.weights) setup.weights->load(trainer);
  const SampleOrder order(setup.data.num_samples(setup.shape.length), options.order, options.seed);
  Batches batches(setup.data.samples(), order, setup.shape, setup.model->inputs());
  const auto is_stopped = [&] { return signal_of_ranks(processes, signals) != 0; };
  Profile profile;
  double shortest_s = std::numeric_limits<double>::infinity();
  for (uint64_t step = 0; step <= setup.num_steps() && !is_stopped(); ++step) {
    const uint64_t position = step * setup.shape.num_samples();
    const double learning_rate = setup.learning_rate.at(std::min(step, setup.num_steps() - 1));
    const auto& micro_batches = setup.prepared.share.micro_batches;
    const StepResult result = trainer.step(micro_batches.of(batches.load(position)), learning_rate);
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
    const double longest_s = greatest_of_ranks(ranks, record.step_seconds);
    if (longest_s < shortest_s) {
      shortest_s = longest_s;
      profile.fastest = std::move(record);
      profile.kernels_s = result.compute_s;
      profile.times.assign(times.begin(), times.end());
    }
  }
  say_notices(*device);
  return profile;
}

/// "rank 1 of 2: "; empty if there is one rank.
std::string rank_title(const Preparation& p) {
  const RankPlace& place = p.division.place;
  return place.num_ranks == 1 ? "" : fmt::format("rank {} of {}: ", place.rank, place.num_ranks);
}

/// Where the time of the fastest step and the traffic of every step went.
std::string text_of(const Preparation& p, const Profile& profile) {
  const SpentTime spent =
      spent_time(p.plan, profile.times, profile.fastest.step_seconds, profile.kernels_s);
  return fmt::format("{}fastest step: {}\n{}{}", rank_title(p), format_spent(spent),
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
  ReportView predicted = simulated_view(p, setup.rates.machine);
  if (setup.ranks != nullptr) predicted.name = "predicted alone";
  return {.title = fmt::format("{}{}: step {} of {}", rank_title(p), setup.source.name, r.step,
                               setup.num_steps()),
          .facts = header_lines(options, setup),
          .tokens_per_step = setup.shape.num_tokens(),
          .tiles = {{"on the device", static_cast<double>(p.ledger.total(Tier::Device)), "bytes"}},
          .views = {std::move(measured), std::move(predicted)}};
}

/// Rank 0 prints the texts of all ranks and writes their pages.
void write_profile(const ProfileRequest& request, const TrainSetup& setup, const Profile& profile) {
  const bool writes = setup.prepared.division.place.rank == 0;
  for (const std::string& text : texts_of_ranks(setup.ranks, text_of(setup.prepared, profile))) {
    if (writes) fmt::print("{}", text);
  }
  if (request.html.empty()) return;
  const Report report = report_of(request.run.options, setup, profile);
  const auto pages = texts_of_ranks(setup.ranks, html_report(report, setup.prepared));
  for (uint32_t rank = 0; writes && rank < pages.size(); ++rank) {
    const std::string path = page_of(rank, request.html);
    write_new_file(path, pages[rank]);
    fmt::print("report: {}\n", path);
  }
}

int profile_as_rank(ProfileRequest& request, const RankProcesses& processes) {
  TrainOptions& options = request.run.options;
  take_place(options, processes);
  if (processes.is_first()) check_paths(request, processes.place().num_ranks);
  // Must come first: set-up starts threads, which must not receive the signals.
  const Signals signals = watch_signals(processes, [](const char* name) {
    say(fmt::format("{}: the profile ends after this step; a second signal ends it at once\n",
                    name));
  });
  const auto setup = set_up_ranks(request.run, processes, signals);
  if (!setup) return exit_code_of(signal_of_ranks(processes, signals));
  say(format_header(options, *setup));
  const Profile profile = measure(options, *setup, processes, signals);
  const int signal = signal_of_ranks(processes, signals);
  if (signal != 0) {
    say(fmt::format("stopped after step {} of {}\n", profile.num_steps, setup->num_steps()));
  }
  if (profile.num_steps > 0) write_profile(request, *setup, profile);
  if (!options.trace.empty()) fmt::print("trace: {}\n", options.trace);
  return signal != 0 ? exit_code_of(signal) : 0;
}

}  // namespace

int profile_command(std::vector<std::string> arguments) {
  auto request = parse_profile(arguments);
  if (!request) return 0;
  return run_on_ranks(
      request->run.options, "profile", arguments,
      [&](const RankProcesses& processes) { return profile_as_rank(*request, processes); });
}

}  // namespace ebb
