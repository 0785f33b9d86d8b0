// ebb generate: continues a text of bytes or tokens and writes the added part.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <optional>
#include <vector>

#include "device/errors.h"
#include "model_zoo/generation.h"
#include "model_zoo/model_files.h"
#include "tools/cli.h"
#include "tools/commands.h"
#include "tools/flag_values.h"
#include "tools/inference_setup.h"
#include "tools/signals.h"
#include "tools/train_setup.h"

namespace ebb {
namespace {

constexpr RealRange kNotNegative{.zero_allowed = true};
constexpr RealRange kShare{.most = 1};

struct GenerateOptions {
  TrainOptions run;
  std::optional<std::string> prompt;
  std::optional<std::vector<int32_t>> prompt_tokens;
  uint64_t max_tokens = 128;
  Sampling sampling;
};

std::vector<int32_t> parse_tokens(std::string_view flag, std::string_view text) {
  std::vector<int32_t> tokens;
  for (size_t at = 0; at <= text.size();) {
    const size_t comma = std::min(text.find(',', at), text.size());
    tokens.push_back(
        static_cast<int32_t>(whole_value(flag, text.substr(at, comma - at), 0, INT32_MAX)));
    at = comma + 1;
  }
  return tokens;
}

void add_text_flags(CommandLine& line, GenerateOptions& o) {
  FlagGroup group{line, "Text"};
  group.add("--prompt", "TEXT", "the text to continue, for a model whose tokens are bytes",
            [&o](std::string_view, std::string_view text) { o.prompt = std::string(text); });
  group.add("--prompt-tokens", "1,2,3", "the tokens to continue, for any model",
            [&o](std::string_view flag, std::string_view text) {
              o.prompt_tokens = parse_tokens(flag, text);
            });
  group.add("--max-tokens", "N [128]", "add at most N tokens; the text may end earlier",
            [&o](std::string_view flag, std::string_view text) {
              o.max_tokens = whole_value(flag, text, 1, uint64_t{1} << 30);
            });
  group.add("--temperature", "X [0]",
            "divide the logits by X; 0 = always choose the likeliest token, --seed has no effect",
            [&o](std::string_view flag, std::string_view text) {
              o.sampling.temperature = real_value(flag, text, kNotNegative);
            });
  group.add("--top-k", "N [0]", "sample from the N likeliest tokens; 0 = all",
            [&o](std::string_view flag, std::string_view text) {
              o.sampling.top_k = static_cast<int64_t>(whole_value(flag, text, 0));
            });
  group.add("--top-p", "P [1]", "sample from the likeliest tokens that together have probability P",
            [&o](std::string_view flag, std::string_view text) {
              o.sampling.top_p = real_value(flag, text, kShare);
            });
}

std::optional<GenerateOptions> parse_generate(std::vector<std::string> arguments) {
  CommandLine line("Continues a text and prints the added part.", "ebb generate");
  GenerateOptions options;
  add_inference_flags(line, options.run);
  add_text_flags(line, options);
  if (!parse_arguments(line, std::move(arguments), true)) return std::nullopt;
  validate_inference(options.run);
  if (options.prompt.has_value() == options.prompt_tokens.has_value()) {
    throw ConfigError("give one of --prompt TEXT (models over bytes) and --prompt-tokens 1,2,3");
  }
  options.sampling.seed = options.run.seed;
  return options;
}

std::vector<int32_t> prompt_of(const GenerateOptions& options, const ModelSource& source) {
  if (options.prompt_tokens) return *options.prompt_tokens;
  if (!source.reads_bytes()) {
    throw ConfigError(
        fmt::format("--prompt is for models over bytes, and the vocabulary of '{}' is {}: give "
                    "--prompt-tokens, or use tools/generate.py, which has the model's tokenizer",
                    source.name, source.vocabulary()));
  }
  if (options.prompt->empty()) throw ConfigError("--prompt is empty: give at least one byte");
  std::vector<int32_t> tokens;
  for (const char c : *options.prompt) tokens.push_back(static_cast<unsigned char>(c));
  return tokens;
}

/// Writes each token when it is known: as a byte, or as a number with commas between numbers.
class TokenOutput {
 public:
  explicit TokenOutput(bool bytes) : bytes_(bytes) {}
  void write(int32_t token) {
    if (bytes_) {
      std::fputc(token, stdout);
    } else {
      fmt::print("{}{}", count_ > 0 ? "," : "", token);
    }
    ++count_;
    flush_results();
  }
  void finish() const {
    fmt::print("\n");
    flush_results();
  }
  uint64_t count() const { return count_; }

 private:
  bool bytes_;
  uint64_t count_ = 0;
};

/// Returns the exit code. A signal ends the text after a token.
int generate(const GenerateOptions& options, const Signals& signals) {
  const ModelSource source = model_source(options.run);
  const std::vector<int32_t> prompt = prompt_of(options, source);
  const std::vector<int32_t> ends =
      source.folder.empty() ? std::vector<int32_t>{} : end_tokens(source.folder);
  const RunFlags flags{.options = options.run, .max_tokens = options.max_tokens};
  const auto generation_of = [&](const RunFlags& f) {
    return Generation(source.config,
                      {.prompt_length = static_cast<int64_t>(prompt.size()),
                       .max_tokens = static_cast<int64_t>(f.max_tokens)},
                      f.options.dtype);
  };
  Generation generation = generation_of(flags);
  LoadedInference loaded = load_inference(
      flags, source, generation.passes(), [&](const RunFlags& f, const Budgets& budgets) {
        return prepare_inference(generation_of(f).passes(), inference_options(f.options, source),
                                 budgets);
      });
  say(inference_header(options.run, source, loaded));
  const double begin_s = loaded.device->now_s();
  std::span<const float> logits = generation.read_prompt(*loaded.inference, prompt);
  const double prompt_s = loaded.device->now_s() - begin_s;
  TokenOutput output(options.prompt.has_value());
  for (uint64_t i = 0; signals.pending() == 0; ++i) {
    const int32_t token = choose_token(logits, options.sampling, i);
    if (std::ranges::find(ends, token) != ends.end()) break;
    output.write(token);
    if (i + 1 == options.max_tokens) break;
    logits = generation.read_token(*loaded.inference, token);
  }
  output.finish();
  say_notices(*loaded.device);
  say(fmt::format("prompt  {} tokens in {:.3f} s\nadded   {} tokens in {:.3f} s\n", prompt.size(),
                  prompt_s, output.count(), loaded.device->now_s() - begin_s - prompt_s));
  if (signals.pending() == 0) return 0;
  say(fmt::format("stopped after token {} of {}\n", output.count(), options.max_tokens));
  return signals.exit_code();
}

}  // namespace

int generate_command(std::vector<std::string> arguments) {
  const auto options = parse_generate(std::move(arguments));
  if (!options) return 0;
  // Must come first: set-up starts threads, which must not receive the signals.
  const Signals signals([](const char* name) {
    say(fmt::format("{}: the text ends after this token; a second signal ends it at once\n", name));
  });
  return generate(*options, signals);
}

}  // namespace ebb
