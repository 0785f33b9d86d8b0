#include "model_zoo/tensor_names.h"

#include <algorithm>

namespace ebb {
namespace {

TensorNaming naming_of(const Gpt2Config&) {
  return {.added_prefix = "transformer.",
          .base_prefix = "transformer.",
          .transposed = {"attn.c_attn.weight", "attn.c_proj.weight", "mlp.c_fc.weight",
                         "mlp.c_proj.weight"},
          .copies = {{"lm_head.weight", "transformer.wte.weight"}},
          .buffers = {".attn.bias", ".attn.masked_bias"}};
}

TensorNaming naming_of(const LlamaConfig& c) {
  const int64_t kv = c.num_kv_heads * c.head_dim;
  TensorNaming naming{
      .base_prefix = "model.",
      .fused = {{"self_attn.qkv",
                 {{"self_attn.q_proj", c.query_channels()},
                  {"self_attn.k_proj", kv},
                  {"self_attn.v_proj", kv}}},
                {"mlp.gate_up",
                 {{"mlp.gate_proj", c.mlp_channels}, {"mlp.up_proj", c.mlp_channels}}}},
      .buffers = {"rotary_emb.inv_freq"}};
  if (c.tied_head) naming.copies = {{"lm_head.weight", "model.embed_tokens.weight"}};
  return naming;
}

TensorNaming naming_of(const BertConfig& c) {
  return {
      .base_prefix = "bert.",
      .fused = {{"attention.self.qkv",
                 {{"attention.self.query", c.channels},
                  {"attention.self.key", c.channels},
                  {"attention.self.value", c.channels}}}},
      .old_ends = {{"LayerNorm.weight", "LayerNorm.gamma"}, {"LayerNorm.bias", "LayerNorm.beta"}},
      .copies = {{"cls.predictions.decoder.weight", "bert.embeddings.word_embeddings.weight"},
                 {"cls.predictions.decoder.bias", "cls.predictions.bias"}},
      .buffers = {".position_ids"},
      .other_heads = {"bert.pooler.", "pooler.", "cls.seq_relationship."}};
}

}  // namespace

TensorNaming naming_of(const ModelConfig& config) {
  return std::visit([](const auto& c) { return naming_of(c); }, config);
}

std::vector<std::string> stored_names(const TensorNaming& naming, const std::string& name) {
  std::vector<std::string> names = {name};
  for (const auto& [now, before] : naming.old_ends) {
    if (!name.ends_with(now)) continue;
    names.push_back(name.substr(0, name.size() - now.size()) + std::string(before));
  }
  for (size_t i = 0, count = names.size(); i < count; ++i) {
    if (names[i].starts_with(naming.base_prefix)) {
      names.push_back(names[i].substr(naming.base_prefix.size()));
    }
  }
  for (const auto& [copy, original] : naming.copies) {
    if (name == original) names.emplace_back(copy);
  }
  return names;
}

bool is_in_other_head(const TensorNaming& naming, std::string_view name) {
  return std::ranges::any_of(
      naming.other_heads, [&](std::string_view beginning) { return name.starts_with(beginning); });
}

bool is_ignored(const TensorNaming& naming, std::string_view name) {
  return is_in_other_head(naming, name) ||
         std::ranges::any_of(naming.buffers,
                             [&](std::string_view end) { return name.ends_with(end); });
}

bool is_in_head(const TensorNaming& naming, std::string_view name) {
  return !name.starts_with(naming.base_prefix);
}

}  // namespace ebb
