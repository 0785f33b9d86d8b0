#include "tests/model_zoo/reference_run.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>

#include "device/ignored_label.h"
#include "tests/model_zoo/hf_folder.h"

namespace ebb::test {
namespace {

using Json = nlohmann::json;

ScheduleShape shape_of(const std::string& name) {
  if (name == "constant") return ScheduleShape::Constant;
  return name == "linear" ? ScheduleShape::Linear : ScheduleShape::Cosine;
}

Gpt2Config read_gpt2(const Json& c) {
  return {.vocabulary = c.at("vocabulary"),
          .max_positions = c.at("max_positions"),
          .channels = c.at("channels"),
          .num_layers = c.at("num_layers"),
          .num_heads = c.at("num_heads")};
}

BertConfig read_bert(const Json& c) {
  return {.vocabulary = c.at("vocabulary"),
          .max_positions = c.at("max_positions"),
          .num_token_types = c.at("num_token_types"),
          .channels = c.at("channels"),
          .num_layers = c.at("num_layers"),
          .num_heads = c.at("num_heads"),
          .mlp_channels = c.at("mlp_channels"),
          .norm_epsilon = c.at("norm_epsilon")};
}

LlamaConfig read_llama(const Json& c) {
  LlamaConfig config{.vocabulary = c.at("vocabulary"),
                     .channels = c.at("channels"),
                     .num_layers = c.at("num_layers"),
                     .num_heads = c.at("num_heads"),
                     .num_kv_heads = c.at("num_kv_heads"),
                     .head_dim = c.at("head_dim"),
                     .mlp_channels = c.at("mlp_channels"),
                     .max_positions = c.at("max_positions"),
                     .norm_epsilon = c.at("norm_epsilon"),
                     .tied_head = c.at("tied_head"),
                     .qkv_bias = c.at("qkv_bias"),
                     .output_bias = c.at("output_bias"),
                     .mlp_bias = c.at("mlp_bias"),
                     .qk_norm = c.at("qk_norm"),
                     .rotary = read_rotary(c.at("rotary"))};
  if (!c.at("sliding_window").is_null()) config.sliding_window = c.at("sliding_window");
  return config;
}

ModelConfig read_model_config(const Json& c) {
  const std::string architecture = c.value("architecture", "gpt2");
  if (architecture == "bert") return read_bert(c);
  if (architecture == "llama") return read_llama(c);
  return read_gpt2(c);
}

void read_config(const Json& c, ReferenceRun& run) {
  run.config = read_model_config(c);
  run.packed = c.value("packed", false);
  run.batch = c.at("batch");
  run.length = c.at("length");
  run.seed = c.at("seed");
  run.options.gradient_accumulation = c.at("micro_batches");
  run.options.max_grad_norm = c.at("max_grad_norm");
  run.options.adam = {.beta1 = c.at("beta1"),
                      .beta2 = c.at("beta2"),
                      .epsilon = c.at("epsilon"),
                      .weight_decay = c.at("weight_decay")};
  run.learning_rate = {.peak = c.at("peak"),
                       .minimum = c.at("minimum"),
                       .warmup_steps = c.at("warmup_steps"),
                       .num_steps = 0,
                       .shape = shape_of(c.at("shape"))};
}

ReferenceMicroBatch read_micro_batch(const Json& json, int64_t length) {
  ReferenceMicroBatch batch{.tokens = json.at("tokens"), .targets = json.at("targets")};
  const std::pair<const char*, std::vector<int32_t>*> more[] = {
      {"positions", &batch.positions},
      {"token_types", &batch.token_types},
      {"document_starts", &batch.document_starts}};
  for (const auto& [name, values] : more) {
    if (json.contains(name)) json.at(name).get_to(*values);
  }
  for (const int32_t first : json.value("first_positions", std::vector<int32_t>{})) {
    for (int32_t t = 0; t < length; ++t) batch.positions.push_back(first + t);
  }
  batch.num_targets = static_cast<uint64_t>(std::count_if(
      batch.targets.begin(), batch.targets.end(), [](int32_t t) { return t != kIgnoredLabel; }));
  return batch;
}

uint64_t split_mix(uint64_t x) {
  x += 0x9E3779B97F4A7C15u;
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9u;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBu;
  return x ^ (x >> 31);
}

/// Omits the biases of keys in models without rotary positions. Their gradient is 0 except for
/// rounding (make_gpt2.py).
std::vector<float> compared_elements(const std::string& name, std::vector<float> values) {
  if (name.ends_with("attn.c_attn.bias") || name.ends_with("attention.self.qkv.bias")) {
    const auto third = static_cast<ptrdiff_t>(values.size() / 3);
    values.erase(values.begin() + third, values.begin() + 2 * third);
  }
  return values;
}

double relative(double value, double reference) {
  return std::abs(value - reference) / std::abs(reference);
}

double largest_relative(const std::vector<double>& values, const std::vector<double>& reference) {
  EXPECT_EQ(values.size(), reference.size());
  double largest = 0;
  for (size_t i = 0; i < values.size(); ++i) {
    largest = std::fmax(largest, relative(values[i], reference[i]));
  }
  return largest;
}

Preparation prepare_run(const Model& model, const ReferenceRun& reference,
                        const RunSettings& settings) {
  TrainerOptions options = reference.options;
  options.dtype = settings.dtype;
  options.initial_loss_scale = 1024;  // as in the scripts for fp16, so that no step is skipped
  options.chunk_bytes = settings.chunk_bytes;
  options.schedule.recompute = settings.recompute;
  if (settings.change_options) settings.change_options(options);
  Budgets budgets{.device = {.kind = settings.device, .num_threads = settings.num_threads}};
  Preparation prepared = prepare(model, options, budgets);
  if (!settings.smallest_budget) return prepared;
  budgets.device_memory = prepared.smallest_device_bytes;
  return prepare(model, options, budgets);
}

}  // namespace

Rotary read_rotary(const Json& r) {
  static constexpr std::pair<std::string_view, RotaryScaling> kScalings[] = {
      {"none", RotaryScaling::None},
      {"linear", RotaryScaling::Linear},
      {"llama3", RotaryScaling::Llama3},
      {"yarn", RotaryScaling::Yarn}};
  Rotary rotary{.theta = r.at("theta")};
  for (const auto& [name, scaling] : kScalings) {
    if (r.at("scaling") == name) rotary.scaling = scaling;
  }
  rotary.original_max_positions = r.at("original_max_positions");
  const std::pair<const char*, double*> numbers[] = {{"factor", &rotary.factor},
                                                     {"low_freq_factor", &rotary.low_freq_factor},
                                                     {"high_freq_factor", &rotary.high_freq_factor},
                                                     {"beta_fast", &rotary.beta_fast},
                                                     {"beta_slow", &rotary.beta_slow}};
  for (const auto& [name, to] : numbers) *to = r.value(name, *to);
  rotary.truncate = r.value("truncate", true);
  const std::pair<const char*, std::optional<double>*> optional[] = {
      {"attention_factor", &rotary.attention_factor},
      {"mscale", &rotary.mscale},
      {"mscale_all_dim", &rotary.mscale_all_dim}};
  for (const auto& [name, to] : optional) {
    if (r.contains(name)) *to = r.at(name).get<double>();
  }
  return rotary;
}

nlohmann::json read_fixture(std::string_view name) {
  const std::string path = std::string(EBB_FIXTURES) + "/" + std::string(name) + ".json";
  std::ifstream file(path);
  if (!file) throw IoError("opening", path, errno);
  return Json::parse(file);
}

ReferenceRun load_reference(std::string_view name, std::string_view architecture) {
  const Json json = read_fixture(std::string(architecture) + "_" + std::string(name));
  ReferenceRun run;
  read_config(json.at("config"), run);
  run.learning_rates = json.at("learning_rates").get<std::vector<double>>();
  run.losses = json.at("losses").get<std::vector<double>>();
  run.norms = json.at("norms").get<std::vector<double>>();
  run.bf16_losses = json.at("bf16").at("losses").get<std::vector<double>>();
  run.bf16_norms = json.at("bf16").at("norms").get<std::vector<double>>();
  run.fp16_losses = json.at("fp16").at("losses").get<std::vector<double>>();
  run.fp16_norms = json.at("fp16").at("norms").get<std::vector<double>>();
  if (json.contains("logits")) {
    const Json& logits = json.at("logits");
    run.logits = {logits.at("max"), logits.at("stride"), logits.at("values")};
  }
  for (const auto& [key, p] : json.at("final").items()) {
    run.final_parameters.push_back({key, p.at("max"), p.at("sum"), p.at("stride"), p.at("values")});
  }
  for (const Json& step : json.at("steps")) {
    auto& batches = run.steps.emplace_back();
    for (const Json& batch : step) batches.push_back(read_micro_batch(batch, run.length));
  }
  run.learning_rate.num_steps = run.steps.size();
  return run;
}

std::vector<float> initial_values(const Parameter& parameter, ParameterId id, uint64_t seed) {
  const bool is_matrix = parameter.shape.rank() == 2;
  const auto contains = [&](std::string_view part) {
    return parameter.name.find(part) != std::string::npos;
  };
  const bool is_norm_weight = !is_matrix && parameter.name.ends_with("weight") &&
                              (contains("ln_") || contains("norm") || contains("Norm"));
  const double scale = is_matrix ? 0.25 : 0.125;
  std::vector<float> values(static_cast<size_t>(parameter.shape.num_elements()));
  for (size_t i = 0; i < values.size(); ++i) {
    const uint64_t hash = split_mix(i + (seed << 48 | uint64_t{id} << 32));
    const double uniform = (static_cast<double>(hash >> 48) - 32768) / 32768;
    values[i] = static_cast<float>(uniform * scale + (is_norm_weight ? 1 : 0));
  }
  return values;
}

std::vector<MicroBatch> micro_batches_of(const ReferenceRun& reference,
                                         const std::vector<ReferenceMicroBatch>& step) {
  const Shape shape{reference.batch, reference.length};
  std::vector<MicroBatch> batches;
  for (const ReferenceMicroBatch& b : step) {
    MicroBatch batch{.inputs = {tensor_of(b.tokens, shape), tensor_of(b.positions, shape),
                                tensor_of(b.targets, shape)},
                     .num_targets = b.num_targets};
    for (const auto* more : {&b.token_types, &b.document_starts}) {
      if (!more->empty()) batch.inputs.push_back(tensor_of(*more, shape));
    }
    batches.push_back(std::move(batch));
  }
  return batches;
}

std::unique_ptr<const Model> create_model(const ReferenceRun& reference, DType dtype) {
  return create_model(
      reference.config,
      {.batch_size = reference.batch, .length = reference.length, .packed = reference.packed},
      dtype);
}

void write_initial_values(Trainer& trainer, const Model& model, uint64_t seed) {
  for (ParameterId id = 0; id < model.parameters().size(); ++id) {
    const Parameter& p = model.parameters()[id];
    trainer.write_parameter(p.name, initial_values(p, id, seed));
  }
}

RunResult run_reference(const ReferenceRun& reference, const RunSettings& settings) {
  const auto owned = create_model(reference, settings.dtype);
  const Model& model = *owned;
  const Preparation prepared = prepare_run(model, reference, settings);
  const auto device =
      create_device({.profile = {.kind = settings.device, .num_threads = settings.num_threads},
                     .memory_bytes = prepared.ledger.total(Tier::Device),
                     .poison = true});
  Trainer trainer(model, *device, prepared);
  write_initial_values(trainer, model, reference.seed);
  RunResult result{.num_blocks = prepared.num_blocks,
                   .num_weight_chunks = prepared.layout->num_chunks()};
  for (size_t s = 0; s < reference.steps.size(); ++s) {
    const double rate = settings.learning_rate ? settings.learning_rate(reference.learning_rate, s)
                                               : reference.learning_rate.at(s);
    std::vector<MicroBatch> batches = micro_batches_of(reference, reference.steps[s]);
    if (settings.change_step) settings.change_step(batches);
    if (settings.before_step) settings.before_step(trainer, model, rate);
    const StepResult step = trainer.step(batches, rate);
    result.losses.push_back(step.loss);
    result.norms.push_back(step.grad_norm);
    result.loaded_bytes += step.loaded_bytes;
  }
  for (const Parameter& p : model.parameters()) {
    result.parameters.push_back(trainer.read_parameter(p.name));
  }
  result.state_hash = trainer.state_hash();
  return result;
}

Deviation deviation(const ReferenceRun& reference, const RunResult& result) {
  Deviation d{.loss = largest_relative(result.losses, reference.losses),
              .norm = largest_relative(result.norms, reference.norms)};
  const auto owned = create_model(reference, DType::F32);
  const Model& model = *owned;
  EXPECT_EQ(reference.final_parameters.size(), model.parameters().size());
  for (const ReferenceParameter& p : reference.final_parameters) {
    const auto at = std::find_if(model.parameters().begin(), model.parameters().end(),
                                 [&](const Parameter& own) { return own.name == p.name; });
    if (at == model.parameters().end()) {
      ADD_FAILURE() << "there is no parameter " << p.name;
      continue;
    }
    const auto values = compared_elements(
        p.name, result.parameters[static_cast<size_t>(at - model.parameters().begin())]);
    double sum = 0;
    for (const float value : values) sum += static_cast<double>(value);
    d.weight_sum = std::fmax(d.weight_sum,
                             std::abs(sum - p.sum) / (p.max * static_cast<double>(values.size())));
    for (size_t i = 0; i < p.values.size(); ++i) {
      const double own = static_cast<double>(values.at(i * p.stride));
      d.weight = std::fmax(d.weight, std::abs(own - p.values[i]) / p.max);
    }
  }
  return d;
}

double rms_deviation(const std::vector<double>& values, const std::vector<double>& reference) {
  double sum = 0;
  for (size_t i = 0; i < values.size(); ++i) {
    sum += std::pow(relative(values[i], reference[i]), 2);
  }
  return std::sqrt(sum / static_cast<double>(values.size()));
}

}  // namespace ebb::test
