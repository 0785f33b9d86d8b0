// ebb generate: continues a text or tokens, or answers messages, and writes the added part.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <optional>
#include <utility>
#include <vector>

#include "device/errors.h"
#include "model_zoo/generation.h"
#include "tools/cli.h"
#include "tools/commands.h"
#include "tools/flag_setters.h"
#include "tools/inference_setup.h"
#include "tools/message_reader.h"
#include "tools/saved_run.h"
#include "tools/signals.h"
#include "tools/stop_text.h"
#include "tools/token_text.h"
#include "tools/train_flags.h"
#include "tools/train_setup.h"

namespace ebb {
namespace {

constexpr RealRange kNotNegative{.zero_allowed = true};
constexpr RealRange kShare{.most = 1};

struct GenerateOptions {
  TrainOptions run;
  std::optional<std::string> prompt;
  std::optional<std::vector<int32_t>> prompt_tokens;
  bool chat = false;
  uint64_t max_tokens = 128;
  std::optional<std::string> stop;
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
  group.add("--prompt", "TEXT", "the text to continue, or with --chat the message to answer",
            setters::text(o.prompt));
  group.add_flag("--chat",
                 "answer messages, with the model's chat template: lines that are typed on a "
                 "terminal, or --prompt or the whole standard input as one message",
                 [&o] { o.chat = true; });
  group.add("--prompt-tokens", "1,2,3", "the tokens to continue, for any model",
            [&o](std::string_view flag, std::string_view text) {
              o.prompt_tokens = parse_tokens(flag, text);
            });
  group.add("--max-tokens", "N [128]", "add at most N tokens; the text may end earlier",
            setters::whole(o.max_tokens, 1, uint64_t{1} << 30));
  group.add("--stop", "TEXT", "end the added text before the first TEXT in it",
            setters::text(o.stop));
  group.add("--temperature", "X [0]",
            "divide the logits by X; 0 = always choose the likeliest token, --seed has no effect",
            setters::real(o.sampling.temperature, kNotNegative));
  group.add("--top-k", "N [0]", "sample from the N likeliest tokens; 0 = all",
            setters::whole(o.sampling.top_k, 0));
  group.add("--top-p", "P [1]", "sample from the likeliest tokens that together have probability P",
            setters::real(o.sampling.top_p, kShare));
}

std::optional<GenerateOptions> parse_generate(std::vector<std::string> arguments) {
  CommandLine line("Continues a text and prints the added part.", "ebb generate");
  GenerateOptions options;
  add_inference_flags(line, options.run);
  add_text_flags(line, options);
  add_tokenizer_flags(line, "Text", options.run);
  if (!parse_arguments(line, std::move(arguments), true)) return std::nullopt;
  validate_inference(options.run);
  if (options.prompt_tokens.has_value() == (options.prompt.has_value() || options.chat)) {
    throw ConfigError("give one of --prompt TEXT, --chat and --prompt-tokens 1,2,3");
  }
  if (options.prompt && options.prompt->empty()) {
    throw ConfigError("--prompt is empty: give some text");
  }
  if (options.stop && options.stop->empty()) {
    throw ConfigError("--stop is empty: give the text before which the added text ends");
  }
  if (options.stop && options.prompt_tokens) {
    throw ConfigError(
        "--stop needs a text, and --prompt-tokens prints numbers: leave out one of them");
  }
  options.sampling.seed = options.run.seed;
  return options;
}

/// Writes each token when it is known: as text, or as a number with commas between numbers.
class TokenOutput {
 public:
  /// `text`: null for numbers.
  TokenOutput(TokenText* text, const GenerateOptions& options)
      : text_(text), stop_(options.stop.value_or("")) {}
  void write(int32_t token) {
    if (text_ != nullptr) {
      add(stop_.add(text_->text_of(token)));
    } else {
      fmt::print("{}{}", count_ > 0 ? "," : "", token);
      flush_results();
    }
    ++count_;
  }
  /// Ends the text and returns it.
  std::string finish() {
    if (text_ != nullptr) {
      add(stop_.add(text_->rest()));
      add(stop_.rest());
    }
    fmt::print("\n");
    flush_results();
    return std::move(written_);
  }
  uint64_t count() const { return count_; }
  /// Has the text ended at --stop?
  bool is_at_end() const { return stop_.is_found(); }

 private:
  void add(const std::string& text) {
    if (text.empty()) return;
    std::fwrite(text.data(), 1, text.size(), stdout);
    flush_results();
    written_ += text;
  }

  TokenText* text_;
  StopText stop_;
  std::string written_;
  uint64_t count_ = 0;
};

/// The most tokens of a conversation, whose number is not known before: their keys and values are
/// kept on the device.
constexpr int64_t kMostContext = 4096;
/// A part of a prompt of a conversation: its messages are short.
constexpr int64_t kChatPart = 64;

/// The --seq-length of the training that saved this checkpoint; nullopt if the folder is none.
std::optional<uint64_t> trained_length(const std::string& folder) {
  try {
    const SavedRun run = read_saved_run(folder);
    const FlagValue* const flag = find(run.config, "seq-length");
    if (flag == nullptr || flag->values.size() != 1) return std::nullopt;
    return whole_value("--seq-length", flag->values[0], 1);
  } catch (const Error&) {  // a folder without a run, or a damaged description: text needs neither
    return std::nullopt;
  }
}

/// A model that is loaded for texts of at most this shape. `text`: null if they are numbers.
class Generator {
 public:
  Generator(const GenerateOptions& options, const GenerationShape& shape, const TokenText* text,
            const Signals& signals)
      : options_(options),
        signals_(signals),
        source_(model_source(options.run)),
        ends_(end_tokens(source_, text)),
        trained_length_(trained_length(source_.folder)),
        shape_(shape),
        flags_{.options = options.run, .max_tokens = options.max_tokens},
        generation_(generation_of(flags_)),
        loaded_(load_inference(flags_, source_, generation_.passes(),
                               [this](const RunFlags& f, const Budgets& budgets) {
                                 return prepare_inference(generation_of(f).passes(),
                                                          inference_options(f.options, source_),
                                                          budgets);
                               })) {
    say(inference_header(options.run, source_, loaded_));
  }

  /// Continues a prompt until an end, --stop or a signal. `first` is the number of the first
  /// choice.
  void run(std::span<const int32_t> prompt, uint64_t first, TokenOutput& output) {
    const double begin_s = loaded_.device->now_s();
    std::span<const float> logits = generation_.read_changed_prompt(*loaded_.inference, prompt);
    const double prompt_s = loaded_.device->now_s() - begin_s;
    is_cut_ = false;
    for (uint64_t i = 0; signals_.pending() == 0; ++i) {
      const int32_t token = choose_token(logits, options_.sampling, first + i);
      if (std::ranges::find(ends_, token) != ends_.end()) break;
      output.write(token);
      if (output.is_at_end()) break;
      is_cut_ = i + 1 == options_.max_tokens;
      if (is_cut_) break;
      logits = generation_.read_token(*loaded_.inference, token);
    }
    added_s_ = loaded_.device->now_s() - begin_s - prompt_s;
    prompt_s_ = prompt_s;
  }

  /// Says once that a text is longer than the samples from which the model learned.
  void say_if_longer(uint64_t num_tokens) {
    if (!trained_length_ || num_tokens <= *trained_length_) return;
    say(fmt::format(
        "the prompt and the added text have {} tokens, and the samples of the last training had {} "
        "(--seq-length): a model that never saw longer ones writes nonsense from there on\n",
        num_tokens, *trained_length_));
    trained_length_.reset();
  }

  void say_times(size_t prompt_tokens, uint64_t added_tokens) {
    say_notices(*loaded_.device);
    say(fmt::format(
        "prompt  {} tokens in {:.3f} s\nadded   {} tokens in {:.3f} s{}\n", prompt_tokens,
        prompt_s_, added_tokens, added_s_,
        is_cut_ ? fmt::format(" (all that --max-tokens {} allows)", options_.max_tokens) : ""));
  }

 private:
  Generation generation_of(const RunFlags& flags) const {
    GenerationShape shape = shape_;
    shape.max_tokens = static_cast<int64_t>(flags.max_tokens);
    return Generation(source_.config, shape, flags.options.dtype);
  }

  const GenerateOptions& options_;
  const Signals& signals_;
  const ModelSource source_;
  const std::vector<int32_t> ends_;
  std::optional<uint64_t> trained_length_;
  const GenerationShape shape_;
  const RunFlags flags_;
  Generation generation_;
  LoadedInference loaded_;
  double prompt_s_ = 0, added_s_ = 0;
  bool is_cut_ = false;  // the text had no end before --max-tokens
};

int exit_code_of(const Signals& signals, const GenerateOptions& options, uint64_t count) {
  if (signals.pending() == 0) return 0;
  say(fmt::format("stopped after token {} of {}\n", count, options.max_tokens));
  return signals.exit_code();
}

/// One prompt, whose length is known. Returns the exit code.
int continue_prompt(const GenerateOptions& options, const std::vector<int32_t>& prompt,
                    TokenText* text, const Signals& signals) {
  Generator generator(options,
                      {.prompt_length = static_cast<int64_t>(prompt.size()),
                       .max_tokens = static_cast<int64_t>(options.max_tokens)},
                      text, signals);
  TokenOutput output(text, options);
  generator.run(prompt, 0, output);
  output.finish();
  generator.say_times(prompt.size(), output.count());
  generator.say_if_longer(prompt.size() + output.count());
  if (output.count() == 0 && signals.pending() == 0) {
    say(fmt::format("the model ended the text at once{}\n",
                    options.chat || text == nullptr
                        ? ""
                        : "; a model that was trained on conversations needs --chat"));
  }
  return exit_code_of(signals, options, output.count());
}

/// The shape of a conversation: what a prompt may have beside the tokens of an answer.
GenerationShape conversation_shape(const GenerateOptions& options) {
  const int64_t positions =
      std::min(kMostContext, sizes_of(model_source(options.run).config).max_positions);
  const auto added = static_cast<int64_t>(options.max_tokens);
  if (added >= positions) {
    throw_bad_value("--max-tokens", fmt::to_string(added),
                    fmt::format("less than the {} tokens of a conversation", positions));
  }
  return {.prompt_length = positions - added, .max_tokens = added, .part_length = kChatPart};
}

/// Answers the lines of a terminal until its end. Returns the exit code.
int converse(const GenerateOptions& options, MessageReader& reader, TokenText& text,
             const Signals& signals) {
  const GenerationShape shape = conversation_shape(options);
  Generator generator(options, shape, &text, signals);
  say("type a message; Ctrl-D at the beginning of a line ends the conversation\n");
  std::vector<ChatMessage> messages;
  uint64_t num_chosen = 0;
  while (const auto message = reader.next()) {
    messages.push_back({"user", *message});
    std::vector<int32_t> prompt = text.tokens_of(messages);
    if (static_cast<int64_t>(prompt.size()) > shape.prompt_length && messages.size() > 1) {
      say(fmt::format(
          "the conversation has {} tokens, more than {}: earlier messages are forgotten\n",
          prompt.size(), shape.prompt_length));
      messages = {messages.back()};
      prompt = text.tokens_of(messages);
    }
    if (static_cast<int64_t>(prompt.size()) > shape.prompt_length) {
      say(fmt::format("the message has {} tokens, more than {}: give a shorter one\n",
                      prompt.size(), shape.prompt_length));
      messages.clear();
      continue;
    }
    TokenOutput output(&text, options);
    generator.run(prompt, num_chosen, output);
    num_chosen += output.count() + 1;
    messages.push_back({"assistant", output.finish()});
    generator.say_if_longer(prompt.size() + output.count());
    if (signals.pending() != 0) return exit_code_of(signals, options, output.count());
  }
  say("\n");
  return signals.pending() == 0 ? 0 : signals.exit_code();
}

/// Returns the exit code. A signal ends the text after a token.
int generate(GenerateOptions& options, const Signals& signals) {
  if (options.prompt_tokens) {
    return continue_prompt(options, *options.prompt_tokens, nullptr, signals);
  }
  TokenText text(options.run);
  if (options.prompt && !options.chat) {
    const std::vector<int32_t> prompt = text.tokens_of(*options.prompt);
    if (prompt.empty()) throw ConfigError("--prompt: the text has no tokens: give more text");
    return continue_prompt(options, prompt, &text, signals);
  }
  MessageReader reader([&signals] { return signals.pending() != 0; });
  if (!options.prompt && reader.is_terminal()) {
    // Reports a missing template before the model is loaded.
    text.tokens_of(std::vector<ChatMessage>{{"user", "hello"}});
    return converse(options, reader, text, signals);
  }
  const auto message = options.prompt ? options.prompt : reader.next();
  if (!message && signals.pending() != 0) return signals.exit_code();
  if (!message)
    throw ConfigError("--chat: standard input is empty: give a message, or --prompt TEXT");
  return continue_prompt(options, text.tokens_of(std::vector<ChatMessage>{{"user", *message}}),
                         &text, signals);
}

}  // namespace

int generate_command(std::vector<std::string> arguments) {
  auto options = parse_generate(std::move(arguments));
  if (!options) return 0;
  // Must come first: set-up starts threads, which must not receive the signals.
  const Signals signals([](const char* name) {
    say(fmt::format("{}: the text ends after this token; a second signal ends it at once\n", name));
  });
  return generate(*options, signals);
}

}  // namespace ebb
