#include "tools/run_config.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <iterator>
#include <set>

#include "device/errors.h"
#include "io/json_text.h"
#include "tools/cli.h"
#include "tools/config_file.h"
#include "tools/train_options.h"
#include "tools/train_setup.h"

namespace ebb {
namespace {

// Flags of one invocation, which are not part of a run's configuration.
constexpr std::string_view kPassing[] = {"help",         "config",         "resume",
                                         "dry-run",      "ranks",          "devices",
                                         "rank-timeout", "rank-transport", "network"};

// If the first is not given, its value follows from the second.
constexpr std::string_view kFollowing[][2] = {{"min-lr", "lr"}, {"gradient-dtype", "dtype"}};

// Flags on which no bit of a result depends, unless updates are delayed. Results are assumed to
// depend on every other flag.
constexpr std::string_view kHarmless[] = {"threads",
                                          "chunk-size",
                                          "device-memory",
                                          "host-memory",
                                          "pinned",
                                          "recompute",
                                          "activations",
                                          "gradient-checkpointing",
                                          "micro-batch-order",
                                          "update",
                                          "link",
                                          "log",
                                          "trace",
                                          "save",
                                          "save-steps",
                                          "save-keep",
                                          "save-weights-only",
                                          "save-best",
                                          "save-dtype",
                                          "eval-data",
                                          "eval-labels",
                                          "eval-documents",
                                          "eval-steps",
                                          "eval-batches",
                                          "early-stop",
                                          "sample-steps",
                                          "sample-prompt"};

// With this value of --update, results also depend on the flags below, which say when the updates
// that are left are made.
constexpr std::string_view kDelayed = "delayed";
constexpr std::string_view kFlushing[] = {"update", "save-steps", "eval-data", "eval-steps",
                                          "sample-steps"};

template <size_t N>
bool is_in(const std::string_view (&names)[N], std::string_view name) {
  return std::ranges::find(names, name) != std::end(names);
}

std::set<std::string> names_of(const RunConfig& config) {
  std::set<std::string> names;
  for (const FlagValue& flag : config) names.insert(flag.name);
  return names;
}

/// Was the flag that this flag follows from given again?
bool follows(const FlagValue& flag, const RunConfig& given) {
  return flag.resolved && std::ranges::any_of(kFollowing, [&](const auto& pair) {
           return flag.name == pair[0] && find(given, pair[1]) != nullptr;
         });
}

void set(RunConfig& config, std::string_view name, std::string value) {
  const auto found = std::ranges::find(config, name, &FlagValue::name);
  if (found != config.end()) {
    found->values = {std::move(value)};
  } else {
    config.push_back({std::string(name), {std::move(value)}, true});
  }
}

template <class T>
void set_number(RunConfig& config, std::string_view name, T value) {
  set(config, name, fmt::format("{}", value));
}

std::string_view text_of(ScheduleShape shape) {
  switch (shape) {
    case ScheduleShape::Constant:
      return "constant";
    case ScheduleShape::Linear:
      return "linear";
    case ScheduleShape::Cosine:
      break;
  }
  return "cosine";
}

void set_optimizer(RunConfig& config, const LearningRate& rate, const TrainerOptions& trainer) {
  set_number(config, "steps", rate.num_steps);
  set_number(config, "lr", rate.peak);
  set_number(config, "min-lr", rate.minimum);
  set_number(config, "warmup-steps", rate.warmup_steps);
  set(config, "lr-schedule", std::string(text_of(rate.shape)));
  set_number(config, "weight-decay", trainer.adam.weight_decay);
  set_number(config, "beta1", trainer.adam.beta1);
  set_number(config, "beta2", trainer.adam.beta2);
  set_number(config, "epsilon", trainer.adam.epsilon);
  set_number(config, "max-grad-norm", trainer.max_grad_norm);
  if (trainer.dropout > 0) set_number(config, "dropout", trainer.dropout);
}

std::string joined(const FlagValue* flag) {
  return flag == nullptr ? "not given" : fmt::format("{}", fmt::join(flag->values, " "));
}

bool delays_updates(const RunConfig& config) {
  const FlagValue* const update = find(config, "update");
  return update != nullptr && std::ranges::count(update->values, kDelayed) > 0;
}

/// Checkpoints are JSON, so paths must be UTF-8.
void check_encoding(const FlagValue& flag) {
  for (const std::string& value : flag.values) {
    try {
      json_text(nlohmann::json(value));
    } catch (const nlohmann::json::type_error&) {
      throw ConfigError(fmt::format(
          "--{} '{}' is not UTF-8, so a checkpoint cannot contain this path: rename the file, "
          "or give a symbolic link with a UTF-8 name",
          flag.name, value));
    }
  }
}

}  // namespace

bool is_setting(std::string_view name) { return !is_in(kPassing, name); }

const FlagValue* find(const RunConfig& config, std::string_view name) {
  const auto found = std::ranges::find(config, name, &FlagValue::name);
  return found != config.end() ? &*found : nullptr;
}

RunConfig given_flags(const CommandLine& line, const RunConfig& taken) {
  RunConfig config = line.given();
  std::erase_if(config, [&](const FlagValue& flag) {
    const FlagValue* const kept = find(taken, flag.name);
    return !is_setting(flag.name) || (kept != nullptr && kept->resolved);
  });
  return config;
}

RunConfig give_flags(CommandLine& line, const RunConfig& config) {
  RunConfig taken;
  const RunConfig given = line.given();
  for (const FlagValue& flag : config) {
    if (line.was_given(flag.name) || gives_way(flag.name, given) || follows(flag, given)) {
      continue;
    }
    if (!line.give(flag)) {
      throw ConfigError(
          fmt::format("this program does not know --{} of the checkpoint", flag.name));
    }
    taken.push_back(flag);
  }
  return taken;
}

RunConfig resolved_config(RunConfig config, const TrainOptions& options, const TrainSetup& setup) {
  const TrainerOptions trainer = trainer_options(options, setup.shape, 0, false);
  set_optimizer(config, setup.learning_rate, trainer);
  std::erase_if(config, [](const FlagValue& flag) {
    return flag.name == "epochs" || flag.name == "warmup-ratio";
  });
  set_number(config, "micro-batch-size", setup.shape.batch_size);
  set_number(config, "gradient-accumulation", setup.shape.num_batches);
  set_number(config, "seq-length", setup.shape.length);
  set_number(config, "seed", trainer.seed);
  set(config, "order", options.order == DataOrder::Shuffled ? "shuffled" : "sequential");
  set(config, "dtype", std::string(name_of(trainer.dtype)));
  set(config, "gradient-dtype",
      std::string(name_of(trainer.gradient_dtype.value_or(trainer.dtype))));
  if (setup.device.profile.kind == DeviceKind::Host && trainer.dtype == DType::BF16) {
    set(config, "arithmetic", std::string(name_of(*setup.device.arithmetic)));
  }
  if (setup.device.profile.kind == DeviceKind::Cuda && trainer.dtype != DType::F32) {
    const bool is_ours = setup.device.profile.attention == AttentionKernels::Ebb;
    set(config, "attention", is_ours ? "ebb" : "cudnn");
  }
  if (!options.save.empty()) {
    set(config, "save", std::filesystem::absolute(options.save).string());
  }
  for (FlagValue& flag : config) {
    if (flag.kind != FlagValue::Kind::Path) continue;
    for (std::string& path : flag.values) {
      // A model or a tokenizer may be a hub id, and a tokenizer train:N, which are no paths.
      const bool is_perhaps_a_name = flag.name == "model" || flag.name == "tokenizer";
      if (is_perhaps_a_name && !std::filesystem::exists(path)) continue;
      path = std::filesystem::absolute(path).string();
    }
    if (!options.save.empty()) check_encoding(flag);
  }
  return config;
}

std::string with_origin(std::string error, const RunConfig& taken) {
  std::string origin;
  for (const FlagValue& flag : taken) {
    const std::string name = "--" + flag.name;
    const size_t at = error.find(name);
    if (at == error.npos) continue;
    const char next = error.c_str()[at + name.size()];
    if (next == '-' || (next >= 'a' && next <= 'z')) continue;  // a longer name
    origin += fmt::format("{}{} {}", origin.empty() ? "" : ", ", name, joined(&flag));
  }
  if (!origin.empty()) error += "; this value comes from the checkpoint: " + origin;
  return error;
}

std::string to_toml(const RunConfig& config) {
  std::string text;
  for (const FlagValue& flag : config) {
    if (flag.kind == FlagValue::Kind::Switch) {
      text += fmt::format("{} = true\n", flag.name);
      continue;
    }
    std::vector<std::string> values;
    for (const std::string& value : flag.values) values.push_back(toml_value(value));
    const std::string list = fmt::format("{}", fmt::join(values, ", "));
    text += values.size() == 1 ? fmt::format("{} = {}\n", flag.name, list)
                               : fmt::format("{} = [{}]\n", flag.name, list);
  }
  return text;
}

std::vector<std::string> changes(const RunConfig& before, const RunConfig& now) {
  std::set<std::string> names = names_of(before);
  names.merge(names_of(now));
  const bool delayed = delays_updates(before) || delays_updates(now);
  std::vector<std::string> found;
  for (const std::string& name : names) {
    const FlagValue *was = find(before, name), *is = find(now, name);
    const bool is_harmless = is_in(kHarmless, name) && !(delayed && is_in(kFlushing, name));
    if (is_harmless || (was != nullptr && is != nullptr && was->values == is->values)) {
      continue;
    }
    found.push_back(
        fmt::format("--{} was {} and is {}: the run continues, but its results differ from "
                    "those of a run with this value from the start",
                    name, joined(was), joined(is)));
  }
  return found;
}

}  // namespace ebb
