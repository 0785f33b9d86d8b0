// Generates text with a model, one token at a time. The model first reads the prompt in parts, then
// one token per call. A cache on the device keeps the keys and values of earlier tokens.
//
//   Generation generation(config, {.prompt_length = 5, .max_tokens = 20}, DType::BF16);
//   prepared = prepare_inference(generation.passes(), ...); Inference inference(*device, prepared);
//   auto logits = generation.read_prompt(inference, prompt);
//   for (...) logits = generation.read_token(inference, choose_token(logits, sampling, i));
//
// Logits depend only on the tokens so far, not on the division of the prompt into parts. On the
// host backend they have the same bits as in one forward over all tokens. A Generation may be used
// for several texts, one after the other: read_prompt() begins a new text. One thread at a time.
// B is 1. V is the size of the vocabulary.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "model_zoo/architecture.h"
#include "scheduler/run/inference.h"

namespace ebb {

struct GenerationShape {
  int64_t prompt_length = 1;  ///< the largest number of tokens in a prompt
  int64_t max_tokens = 1;     ///< the largest number of tokens to generate
  int64_t part_length = 512;  ///< tokens of one part of the prompt; each part loads the weights
};

class Generation {
 public:
  /// Throws ConfigError if a length is less than one, or if the prompt and the tokens to generate
  /// need more positions than the model has. `dtype`: of the activations and of the cache.
  Generation(const ModelConfig& config, const GenerationShape& shape, DType dtype);

  /// For prepare_inference(). The first forward reads a part of the prompt, the second reads one
  /// token. The result refers to this object.
  std::span<const ForwardSpec> passes() const { return passes_; }

  /// Begins a new text. Returns the logits (V) of the next token, valid until the next call. Throws
  /// ConfigError if a token is not in the vocabulary. A prompt that is shorter than a part is read
  /// one token at a time. REQUIRES: `prompt` has 1 to prompt_length tokens; `inference` was made
  /// from passes() of this object.
  std::span<const float> read_prompt(Inference& inference, std::span<const int32_t> prompt);
  /// The same for a prompt that may begin with the text so far, as the next turn of a conversation
  /// does: reads the tokens from the first one on that differs, or whole parts of them; at least
  /// the last token. REQUIRES: `inference` is that of the text so far.
  std::span<const float> read_changed_prompt(Inference& inference, std::span<const int32_t> prompt);
  /// Reads one more token and returns the logits of the token after it, valid until the next call.
  /// The last token that is generated need not be read. REQUIRES: read_prompt() was called, at most
  /// prompt_length + max_tokens tokens are read in all, and the token is in the vocabulary.
  std::span<const float> read_token(Inference& inference, int32_t token);

 private:
  std::span<const float> read(Inference& inference, size_t pass, std::span<const int32_t> tokens,
                              int64_t position);

  GenerationShape shape_;
  int64_t vocabulary_, part_length_;
  std::vector<int32_t> read_;  // the tokens of the text so far
  std::unique_ptr<const Model> prompt_model_, token_model_;
  std::vector<ForwardSpec> passes_;
  std::vector<int32_t> tokens_, positions_, targets_;
  std::vector<float> logits_;
};

/// The settings for the choice of the next token. Logits are divided by the temperature. The token
/// is chosen from the top_k tokens with the greatest logits, and of these from the fewest whose
/// probabilities add up to at least top_p.
struct Sampling {
  double temperature = 0;  ///< 0: always the greatest logit; if several are equal, the first
  int64_t top_k = 0;       ///< 0: all
  double top_p = 1;        ///< 1: no limit
  uint64_t seed = 1;
};

/// Chooses a token. `index`, which counts the choices of a run from 0, and the seed determine the
/// random number, so this is a pure function. Throws NumericError if a logit is NaN or +Inf.
int32_t choose_token(std::span<const float> logits, const Sampling& sampling, uint64_t index);

}  // namespace ebb
