#include "model_zoo/generation.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "device/errors.h"
#include "device/ignored_label.h"
#include "device/random.h"

namespace ebb {
namespace {

void check_lengths(const GenerationShape& shape, int64_t max_positions) {
  if (shape.prompt_length < 1) throw ConfigError("the prompt must have at least one token");
  if (shape.max_tokens < 1) throw ConfigError("at least one token must be generated");
  if (shape.prompt_length + shape.max_tokens <= max_positions) return;
  throw ConfigError(
      fmt::format("`max_tokens` {}: a prompt of {} tokens leaves {} of the model's {} positions",
                  shape.max_tokens, shape.prompt_length,
                  std::max<int64_t>(0, max_positions - shape.prompt_length), max_positions));
}

Tensor view(std::vector<int32_t>& values, size_t count) {
  return {
      reinterpret_cast<std::byte*>(values.data()), DType::I32, {1, static_cast<int64_t>(count)}};
}

/// A candidate token. `weight` is first its logit, then its unnormalised and its normalised
/// probability.
struct Weighed {
  double weight;
  int32_t token;
};

/// Whether a comes before b: by descending weight, and by token if the weights are equal.
bool comes_before(const Weighed& a, const Weighed& b) {
  return a.weight != b.weight ? a.weight > b.weight : a.token < b.token;
}

int32_t greatest(std::span<const float> logits) {
  return static_cast<int32_t>(std::max_element(logits.begin(), logits.end()) - logits.begin());
}

/// The top_k candidates, the greatest first, with weights that sum to one.
std::vector<Weighed> candidates(std::span<const float> logits, const Sampling& sampling) {
  const double top = *std::max_element(logits.begin(), logits.end());
  std::vector<Weighed> all(logits.size());
  // Subtracts the greatest logit, so that its exponent is 0 at any temperature.
  for (size_t i = 0; i < logits.size(); ++i) {
    all[i] = {(logits[i] - top) / sampling.temperature, static_cast<int32_t>(i)};
  }
  std::sort(all.begin(), all.end(), comes_before);
  if (sampling.top_k > 0 && static_cast<size_t>(sampling.top_k) < all.size()) {
    all.resize(static_cast<size_t>(sampling.top_k));
  }
  double sum = 0;
  for (Weighed& w : all) sum += w.weight = std::exp(w.weight);
  for (Weighed& w : all) w.weight /= sum;
  return all;
}

}  // namespace

Generation::Generation(const ModelConfig& config, const GenerationShape& shape, DType dtype)
    : shape_(shape),
      vocabulary_(sizes_of(config).vocabulary),
      part_length_(std::min(shape.prompt_length, shape.part_length)) {
  check_lengths(shape, sizes_of(config).max_positions);
  const int64_t cache_length = shape.prompt_length + shape.max_tokens;
  const auto model = [&](int64_t length) {
    return create_model(config, {.length = length, .cache_length = cache_length}, dtype);
  };
  prompt_model_ = model(part_length_);
  token_model_ = model(1);
  for (const Model* m : {prompt_model_.get(), token_model_.get()}) {
    passes_.push_back({.model = m, .loss = false, .logits_rows = 1, .num_classes = vocabulary_});
  }
  tokens_.resize(static_cast<size_t>(part_length_));
  positions_.resize(tokens_.size());
  targets_.assign(tokens_.size(), kIgnoredLabel);
  logits_.resize(static_cast<size_t>(vocabulary_));
}

std::span<const float> Generation::read_prompt(Inference& inference,
                                               std::span<const int32_t> prompt) {
  read_.clear();
  return read_changed_prompt(inference, prompt);
}

/// The last part begins so early that it has full length. Tokens that it shares with the part
/// before are computed again, with the same result.
std::span<const float> Generation::read_changed_prompt(Inference& inference,
                                                       std::span<const int32_t> prompt) {
  const auto size = static_cast<int64_t>(prompt.size());
  EBB_CHECK(size >= 1 && size <= shape_.prompt_length, "the prompt has another length");
  for (const int32_t token : prompt) {
    if (token >= 0 && token < vocabulary_) continue;
    throw ConfigError(fmt::format("token {} of the prompt is not in the model's vocabulary of {}",
                                  token, vocabulary_));
  }
  const auto shared = std::ranges::mismatch(read_, prompt).in1 - read_.begin();
  int64_t next = std::min<int64_t>(shared, size - 1);  // the last token gives the logits
  while (next < size) {
    const bool is_part = size >= part_length_;
    const int64_t first = is_part ? std::min(next, size - part_length_) : next;
    next = first + (is_part ? part_length_ : 1);
    read(inference, is_part ? 0 : 1,
         prompt.subspan(static_cast<size_t>(first), static_cast<size_t>(next - first)), first);
  }
  read_.assign(prompt.begin(), prompt.end());
  return logits_;
}

std::span<const float> Generation::read_token(Inference& inference, int32_t token) {
  const auto position = static_cast<int64_t>(read_.size());
  EBB_CHECK(position > 0 && position < shape_.prompt_length + shape_.max_tokens,
            "the cache has no position for another token");
  EBB_CHECK(token >= 0 && token < vocabulary_, "the token is not in the vocabulary");
  read_.push_back(token);
  return read(inference, 1, {&token, 1}, position);
}

std::span<const float> Generation::read(Inference& inference, size_t pass,
                                        std::span<const int32_t> tokens, int64_t position) {
  std::copy(tokens.begin(), tokens.end(), tokens_.begin());
  std::iota(positions_.begin(), positions_.begin() + static_cast<ptrdiff_t>(tokens.size()),
            static_cast<int32_t>(position));
  inference.run(pass, {.inputs = {view(tokens_, tokens.size()), view(positions_, tokens.size()),
                                  view(targets_, tokens.size())}});
  inference.read_logits(0, logits_);
  return logits_;
}

int32_t choose_token(std::span<const float> logits, const Sampling& sampling, uint64_t index) {
  for (const float logit : logits) {
    if (logit < std::numeric_limits<float>::infinity()) continue;
    throw NumericError("the logits are not finite; try `dtype` fp32");
  }
  if (sampling.temperature == 0) return greatest(logits);
  const std::vector<Weighed> all = candidates(logits, sampling);
  size_t count = 0;
  double share = 0;
  while (count < all.size() && (count == 0 || share < sampling.top_p)) share += all[count++].weight;
  const auto words = philox4x32(index, 0, random_key(sampling.seed, RandomUse::Sampling));
  double left = uniform(words[0]) * share;
  for (size_t i = 0; i + 1 < count; ++i) {
    left -= all[i].weight;
    if (left < 0) return all[i].token;
  }
  return all[count - 1].token;
}

}  // namespace ebb
