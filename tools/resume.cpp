#include "tools/resume.h"

#include <fmt/format.h>

#include <filesystem>

#include "device/errors.h"
#include "model_zoo/hugging_face_config.h"
#include "model_zoo/model_files.h"
#include "tools/chrome_trace.h"
#include "tools/cli.h"
#include "tools/flag_values.h"
#include "tools/run_id.h"

namespace ebb {
namespace {

namespace fs = std::filesystem;

std::string folder_of(const std::string& checkpoint) {
  fs::path path = fs::absolute(checkpoint).lexically_normal();
  if (path.filename().empty()) path = path.parent_path();
  return path.parent_path().string();
}

/// Returns nullopt if there is no checkpoint yet.
std::optional<std::string> checkpoint_to_resume(const TrainOptions& options) {
  const bool newest = options.resume->empty();
  if (newest && options.save.empty()) {
    throw ConfigError(
        "--resume without a folder uses the newest checkpoint in --save: give --save DIR, or "
        "--resume DIR");
  }
  const std::string& folder = newest ? options.save : *options.resume;
  if (newest && !fs::exists(folder)) return std::nullopt;
  const auto found = find_checkpoint(folder);
  if (found || newest) return found;
  throw_bad_value(
      "--resume", folder,
      "a checkpoint (step-N), or a folder that has one; a run writes its first one after "
      "--save-steps steps, or when it ends or is stopped. If there is none, start the run "
      "again without --resume");
}

/// False if the run resumes from a copy or saves to another folder. It is another run then.
bool is_same_run(const std::string& save, const Resumed& resumed) {
  const FlagValue* const made_in = find(resumed.run.config, "save");
  std::error_code error;
  return made_in != nullptr && fs::equivalent(save, folder_of(resumed.checkpoint), error) &&
         fs::equivalent(save, made_in->values.front(), error);
}

void check_has_state(const std::string& checkpoint) {
  if (fs::exists(fs::path(checkpoint) / kStateFile)) return;
  throw ConfigError(fmt::format(
      "--resume '{}': it has only weights (--save-weights-only); start a run from them with "
      "--model, or resume from a checkpoint that has {}",
      checkpoint, kStateFile));
}

/// A renamed checkpoint would hide the name of the next one.
void check_name(const std::string& checkpoint, uint64_t step) {
  const std::string name = fs::absolute(checkpoint).lexically_normal().filename().string();
  const std::string right = checkpoint_name(step);
  if (!is_checkpoint_name(name) || name == right) return;
  throw ConfigError(
      fmt::format("--resume '{}': it contains step {}: rename it to {}", checkpoint, step, right));
}

/// Refuses a model of another size before anything is read.
void check_model(const Resumed& resumed, const TrainOptions& options) {
  const ModelSource source = model_source(options);
  const uint64_t given = num_parameters(source.config);
  const uint64_t saved = num_parameters(read_model_config(resumed.checkpoint));
  if (given == saved) return;
  throw ConfigError(fmt::format(
      "--resume '{0}' continues a model of {1} parameters, and {2} '{3}' has {4}: leave out {2}",
      resumed.checkpoint, saved, options.model.empty() ? "--preset" : "--model", source.name,
      given));
}

LoggedRun logged_run_of(const Resumed& resumed) {
  const SavedRun& run = resumed.run;
  return {.run_id = run.run_id,
          .step = run.position.step,
          .tokens_seen = run.position.num_tokens,
          .last_line = run.log_line,
          .is_same_run = resumed.is_same_run};
}

/// Whether the run may write the file of a flag that only the checkpoint gives.
bool may_write(const Resumed& resumed, const FlagValue& flag) {
  if (flag.name != "log" && flag.name != "trace") return true;
  if (!resumed.is_same_run) return false;
  const std::string& file = flag.values.front();
  if (flag.name == "trace") return is_trace_of(file, resumed.run.run_id);
  return owner_of_log(file, logged_run_of(resumed)) == LogOwner::Ours;
}

void check_log(const Resumed& resumed, const std::string& log) {
  if (owner_of_log(log, logged_run_of(resumed)) != LogOwner::Another) return;
  throw ConfigError(fmt::format(
      "--log '{}': it is not the log of this run (its lines have no run_id {} and no step {} with "
      "tokens_seen {}); give another file",
      log, resumed.run.run_id, resumed.run.position.step, resumed.run.position.num_tokens));
}

/// A checkpoint has the tokenizer of its run, with the chat template. What they were made of may
/// have changed since.
void take_tokenizer(const Resumed& resumed, TrainOptions& options) {
  const auto is_same = [&](std::string_view flag, const std::string& now) {
    const FlagValue* const before = find(resumed.run.config, flag);
    return now == (before == nullptr ? "" : before->values.front());
  };
  const bool is_given = !options.tokenizer.empty();
  const bool is_of_run =
      is_same("tokenizer", options.tokenizer) && (is_given || options.model == resumed.checkpoint);
  if (!is_of_run || !has_tokenizer(resumed.checkpoint)) return;
  if (is_same("chat-template", options.chat_template)) options.chat_template.clear();
  if (is_given) options.tokenizer = resumed.checkpoint;
}

}  // namespace

LoggedRun logged_run(const std::optional<Resumed>& resumed) {
  return resumed ? logged_run_of(*resumed) : LoggedRun{.run_id = new_run_id()};
}

std::optional<Resumed> take_up(CommandLine& line, TrainOptions& options) {
  if (!options.resume) return std::nullopt;
  const auto checkpoint = checkpoint_to_resume(options);
  if (!checkpoint) return std::nullopt;
  check_has_state(*checkpoint);
  Resumed resumed{
      .checkpoint = *checkpoint, .run = read_saved_run(*checkpoint), .taken = {}, .left = {}};
  check_name(*checkpoint, resumed.run.position.step);
  check_state(*checkpoint, resumed.run);
  if (resumed.run.run_id.empty()) resumed.run.run_id = new_run_id();  // of an old checkpoint
  if (options.save.empty()) options.save = folder_of(*checkpoint);
  resumed.is_same_run = is_same_run(options.save, resumed);
  RunConfig config;
  for (const FlagValue& flag : resumed.run.config) {
    if (flag.name == "save") continue;
    if (may_write(resumed, flag)) {
      config.push_back(flag);
    } else if (!line.was_given(flag.name)) {
      resumed.left.push_back(flag);
    }
  }
  if (line.was_given("log")) check_log(resumed, options.log);
  resumed.taken = give_flags(line, config);
  if (find(resumed.taken, "model") != nullptr) options.model = *checkpoint;
  take_tokenizer(resumed, options);
  const bool is_given = line.was_given("model") || line.was_given("preset");
  if (is_given && options.tokenizer.empty()) check_model(resumed, options);
  return resumed;
}

RunPosition start_of(const std::optional<Resumed>& resumed, const TrainSetup& setup) {
  if (!resumed) return {};
  RunPosition start = resumed->run.position;
  const FlagValue* length = find(resumed->run.config, "seq-length");
  if (length != nullptr && length->values != std::vector{fmt::to_string(setup.shape.length)}) {
    start.num_samples = start.num_tokens / static_cast<uint64_t>(setup.shape.length);
  }
  return start;
}

void check_end(const std::optional<Resumed>& resumed, const TrainSetup& setup) {
  const uint64_t step = resumed ? resumed->run.position.step : 0;
  if (step <= setup.num_steps()) return;
  throw ConfigError(fmt::format(
      "--resume '{}': it is at step {} already, but the run ends after step {}: give --steps "
      "above {}, or resume an earlier checkpoint",
      resumed->checkpoint, step, setup.num_steps(), step));
}

bool is_finished(const std::optional<Resumed>& resumed, const TrainSetup& setup) {
  return resumed && resumed->run.position.step == setup.num_steps();
}

std::string written_by(const TrainOptions& options, const TrainSetup& setup) {
  std::string text = fmt::format("ebb {} on ", EBB_VERSION);
  if (setup.device.profile.kind == DeviceKind::Cuda)
    return text + "cuda" + attention_text(setup.device);
  const Processor processor = this_processor();
  const bool is_bf16 = options.dtype == DType::BF16;
  return text + fmt::format("host with {} arithmetic, {} {}/{}",
                            name_of(is_bf16 ? *setup.device.arithmetic : Arithmetic::Fp32),
                            processor.vendor, processor.family, processor.model);
}

DataHashes data_hashes(const TrainSetup& setup) {
  const LabelFile* const labels = setup.data.annotations.labels.get();
  return {.data = fmt::format("{:016x}", setup.data.tokens->fingerprint()),
          .labels = labels == nullptr ? "" : fmt::format("{:016x}", labels->fingerprint())};
}

std::vector<std::string> resume_notices(const TrainOptions& options,
                                        const std::optional<Resumed>& resumed,
                                        const TrainSetup& setup, const RunConfig& config) {
  if (!options.resume) return {};
  if (!resumed) {
    return {fmt::format("resume: '{}' has no checkpoint yet, the run starts from the beginning",
                        options.save)};
  }
  const SavedRun& run = resumed->run;
  std::vector<std::string> notices;
  notices.push_back(
      is_finished(resumed, setup)
          ? fmt::format("resume: the run of '{}' has finished (step {} of {}): give a larger "
                        "--steps to train more",
                        resumed->checkpoint, run.position.step, setup.num_steps())
          : fmt::format("resume: from '{}', step {} of {}", resumed->checkpoint, run.position.step,
                        setup.num_steps()));
  for (const FlagValue& file : resumed->left) {
    notices.push_back(fmt::format(
        "resume: the {0} '{1}' is not continued, because {2}; give --{0} FILE for a new one",
        file.name, file.values.front(),
        resumed->is_same_run ? "no file there has the id of this run"
                             : "this run saves to another folder"));
  }
  if (!run.is_protected) {
    notices.push_back(fmt::format(
        "resume: {} has no checksum, because an older program wrote it: damage is not noticed",
        kTrainingFile));
  }
  for (const std::string& change : changes(run.config, config)) {
    notices.push_back("resume: " + change);
  }
  if (run.data_tokens != setup.data.tokens->num_tokens()) {
    notices.push_back(fmt::format("resume: the data had {} tokens and now has {}: samples differ",
                                  run.data_tokens, setup.data.tokens->num_tokens()));
  } else if (const DataHashes now = data_hashes(setup); !run.data_hash.empty()) {
    if (run.data_hash != now.data)
      notices.push_back("resume: the data has other tokens than before");
    if (run.labels_hash != now.labels)
      notices.push_back("resume: the labels are not those of before");
  }
  if (run.written_by != written_by(options, setup)) {
    notices.push_back(
        fmt::format("resume: written by {}, but this is {}: results may differ in the last bits",
                    run.written_by, written_by(options, setup)));
  }
  return notices;
}

}  // namespace ebb
