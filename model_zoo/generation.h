// Text from a model, a token at a time: the prompt passes in pieces, then each token by itself, and
// keys and values of what was given before stay in a cache on the device.
//
//   Generation generation(config, {.prompt_length = 5, .max_tokens = 20}, DType::BF16);
//   prepared = prepare_inference(generation.passes(), ...); Inference inference(*device, prepared);
//   auto logits = generation.read_prompt(inference, prompt);
//   for (...) logits = generation.read_token(inference, choose_token(logits, sampling, i));
//
// Logits depend on the tokens so far alone: not on how the prompt was cut, and on the host they are
// those of a run over all of them. Any number of generations may follow one another. One thread.
// Errors: ConfigError (lengths, tokens), NumericError (logits that are not numbers).
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "model_zoo/architecture.h"
#include "scheduler/run/inference.h"

namespace ebb {

struct GenerationShape {
  int64_t prompt_length = 1;
  int64_t max_tokens = 1;      ///< to be made
  int64_t piece_length = 512;  ///< of the prompt, at most: weights move once for each
};

class Generation {
 public:
  Generation(const ModelConfig& config, const GenerationShape& shape, DType dtype);

  /// For prepare_inference(): the first for a piece of the prompt, the second for a token.
  std::span<const ForwardSpec> passes() const { return passes_; }

  /// Logits (V) of what comes next; valid until the next call. REQUIRES: prompt_length tokens.
  std::span<const float> read_prompt(Inference& inference, std::span<const int32_t> prompt);
  /// The same after one token more; of max_tokens the last need not be read.
  std::span<const float> read_token(Inference& inference, int32_t token);

 private:
  std::span<const float> read(Inference& inference, size_t pass, std::span<const int32_t> tokens,
                              int64_t position);

  GenerationShape shape_;
  int64_t vocabulary_, piece_length_;
  int64_t num_read_ = 0;
  std::unique_ptr<const Model> prompt_model_, token_model_;
  std::vector<ForwardSpec> passes_;
  std::vector<int32_t> tokens_, positions_, targets_;
  std::vector<float> logits_;
};

/// How the next token is chosen: of the logits divided by the temperature, the greatest top_k, and
/// of their probabilities the fewest that together reach top_p.
struct Sampling {
  double temperature = 0;  ///< 0: always the greatest, of equal ones the first
  int64_t top_k = 0;       ///< 0: all
  double top_p = 1;
  uint64_t seed = 1;
};

/// The index-th choice of a run: a pure function, by counter-based random numbers.
int32_t choose_token(std::span<const float> logits, const Sampling& sampling, uint64_t index);

}  // namespace ebb
