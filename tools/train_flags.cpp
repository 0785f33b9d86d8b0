#include "tools/train_flags.h"

#include <fmt/format.h>

#include "device/errors.h"
#include "tools/cli.h"
#include "tools/flag_setters.h"

namespace ebb {
namespace {

using namespace setters;

constexpr Choice<TokenType> kTokenTypes[] = {{"auto", TokenType::Auto},
                                             {"bytes", TokenType::Bytes},
                                             {"u16", TokenType::U16},
                                             {"u32", TokenType::U32}};
constexpr Choice<bool> kInits[] = {{"weights", false}, {"random", true}};
constexpr Choice<DataOrder> kOrders[] = {{"shuffled", DataOrder::Shuffled},
                                         {"sequential", DataOrder::Sequential}};
constexpr Choice<ScheduleShape> kSchedules[] = {{"constant", ScheduleShape::Constant},
                                                {"linear", ScheduleShape::Linear},
                                                {"cosine", ScheduleShape::Cosine}};
constexpr Choice<DeviceChoice> kDevices[] = {{"auto", DeviceChoice::Auto},
                                             {"host", DeviceChoice::Host},
                                             {"cpu", DeviceChoice::Host},
                                             {"cuda", DeviceChoice::Cuda}};
constexpr Choice<RankTransport> kRankTransports[] = {
    {"auto", RankTransport::Auto}, {"shared", RankTransport::Shared}, {"mpi", RankTransport::Mpi}};
constexpr Choice<std::optional<Arithmetic>> kArithmetics[] = {
    {"auto", std::nullopt}, {"fp32", Arithmetic::Fp32}, {"bf16-dot", Arithmetic::Bf16Dot}};
constexpr Choice<std::optional<AttentionKernels>> kAttentions[] = {
    {"auto", std::nullopt}, {"ebb", AttentionKernels::Ebb}, {"cudnn", AttentionKernels::Cudnn}};
struct UpdateChoice {
  std::optional<UpdateOrder> order = {};
  bool is_delayed = false;
};
constexpr Choice<UpdateChoice> kUpdates[] = {{"auto", {}},
                                             {"delayed", {.is_delayed = true}},
                                             {"overlap", {UpdateOrder::Overlap}},
                                             {"speculate", {UpdateOrder::Speculate}},
                                             {"wait", {UpdateOrder::Wait}}};
constexpr Choice<std::optional<MicroBatchOrder>> kMicroBatchOrders[] = {
    {"horizontal", MicroBatchOrder::Horizontal},
    {"vertical", MicroBatchOrder::Vertical},
    {"auto", std::nullopt}};
const Choice<std::optional<RecomputeRequest>> kRecompute[] = {
    {"none", kRecomputeNone},
    {"norms", Recompute{.groups = {kNormsLevel}}},
    {"mlp", Recompute{.groups = {kMlpLevel}}},
    {"attention", Recompute{.groups = {kAttentionLevel}}},
    {"layer", kRecomputeEach},
    {"block", kRecomputeEach},
    {"sqrt", SquareRootOfLayers{}},
    {"auto", std::nullopt}};
constexpr Choice<std::optional<ActivationPlacement>> kActivations[] = {
    {"device", ActivationPlacement::Device},
    {"offload", ActivationPlacement::Offload},
    {"auto", std::nullopt}};

constexpr uint64_t kMaxLayers = 1'000'000;

constexpr RealRange kPositive{};
constexpr RealRange kNotNegative{.zero_allowed = true};
constexpr RealRange kMinLearningRate{.least = 1e-31, .zero_allowed = true};  // the default is lr/10
constexpr RealRange kRatio{.least = 0, .most = 1, .zero_allowed = true};
constexpr RealRange kBelowOne{.most = 0.9999999, .zero_allowed = true};  // below 1 also in fp32
// The root of the least variance that fp32 has is 1e-19. A smaller epsilon would be lost beside any
// variance, and momenta whose squares become 0 would be divided by it alone.
constexpr RealRange kEpsilon{.least = 1e-20};
// The largest size of a shape: far beyond any machine, but products still fit into 64 bits.
constexpr uint64_t kLargestShape = uint64_t{1} << 20;
constexpr uint64_t kMostRanks = 64;           // of one machine
constexpr uint64_t kMostPlannedRanks = 4096;  // of all machines

/// A share such as 1% or 0.01.
Setter share(std::optional<double>& target) {
  return [&target](std::string_view flag, std::string_view text) {
    const bool is_percent = text.ends_with('%');
    const RealRange range{.least = 1e-6, .most = is_percent ? 90 : 0.9};
    try {
      target = real_value(flag, text.substr(0, text.size() - (is_percent ? 1 : 0)), range) /
               (is_percent ? 100 : 1);
    } catch (const ConfigError&) {
      throw_bad_value(flag, text, "a share of at most 90%, such as 1% or 0.01");
    }
  };
}

/// A name, or the number of layers that are recomputed at once.
Setter recompute(std::optional<RecomputeRequest>& target) {
  return [&target](std::string_view flag, std::string_view text) {
    const bool is_number = !text.empty() && text.front() >= '0' && text.front() <= '9';
    if (is_number) {
      const uint64_t layers = whole_value(flag, text, 1, kMaxLayers);
      target = recompute_together(static_cast<uint32_t>(layers));
    } else {
      target = choice_value<std::optional<RecomputeRequest>>(flag, text, kRecompute);
    }
  };
}

/// Refuses an empty name, which usually comes from a shell variable that is not set, and a long
/// one.
Setter preset_name(std::string& target) {
  return [&target](std::string_view flag, std::string_view text) {
    if (text.empty() || text.size() > 100) {
      throw_bad_value(flag, text, "the name of a preset (`ebb models` lists them)");
    }
    target = std::string(text);
  };
}

constexpr Choice<DType> kSumTypes[] = {{"fp32", DType::F32}, {"bf16", DType::BF16}};

constexpr uint64_t kLeastVocabulary = 259;  // 256 bytes and the special tokens
constexpr uint64_t kMostVocabulary = uint64_t{1} << 20;

/// `text` is train:N.
void check_vocabulary(std::string_view flag, std::string_view text) {
  try {
    whole_value(flag, text.substr(kTrainPrefix.size()), kLeastVocabulary, kMostVocabulary);
  } catch (const ConfigError&) {
    throw_bad_value(flag, text,
                    fmt::format("train:N with a whole number N from {} to {}", kLeastVocabulary,
                                kMostVocabulary));
  }
}

/// The folder of a tokenizer, or train:N.
Setter tokenizer(std::string& target) {
  return [&target](std::string_view flag, std::string_view text) {
    if (text.starts_with(kTrainPrefix)) {
      check_vocabulary(flag, text);
    }
    if (text.empty()) throw_bad_value(flag, text, "the folder of a model, or train:8192");
    target = std::string(text);
  };
}

void add_model_flags(FlagGroup group, TrainOptions& o) {
  group.add("--preset", "NAME",
            "a predefined model with random weights; `ebb models` lists the presets",
            preset_name(o.preset));
  group.add(
      "--model", "DIR",
      "a Hugging Face folder (config.json and *.safetensors), a folder of checkpoints, of which "
      "it takes the newest, or a hub id found in the local cache",
      text(o.model));
  group.add("--init", "weights|random [weights]",
            "load the weights of the folder, or use only its config.json and random weights",
            choice(o.random_init, kInits));
  group.add("--seed", "N [1]",
            "seed of all random numbers, such as initial weights and order of samples",
            whole(o.seed, 0, UINT64_MAX));
  group.add("--dtype", "fp32|bf16|fp16 [bf16]",
            "type of weights on the device and of inputs of matrix products; fp16 scales the loss",
            choice(o.dtype, kTypes));
}

void add_gradient_type_flag(FlagGroup group, TrainOptions& o) {
  group.add("--gradient-dtype", "fp32|bf16|fp16 [as --dtype]",
            "type to which the gradient of a step is rounded before the update",
            choice(o.gradient_dtype, kTypes));
}

void add_micro_batch_flags(FlagGroup group, TrainOptions& o) {
  group.add("--micro-batch-size", "B [4]", "sequences in a micro-batch",
            whole(o.micro_batch_size, 1, kLargestShape));
  group.add("--seq-length,--max-seq-length", "T [the smaller of 1024 and the model's positions]",
            "tokens in a sequence", whole(o.seq_length, 1, kLargestShape));
}

void add_shape_flags(FlagGroup group, TrainOptions& o) {
  add_micro_batch_flags(group, o);
  group.add("--gradient-accumulation", "K [1]", "micro-batches in a step, of all ranks together",
            whole(o.gradient_accumulation, 1, kLargestShape));
  group.add("--groups", "G [K]",
            "groups of micro-batches whose gradients are summed apart and then added in order: a "
            "part of the arithmetic, at least the number of ranks",
            whole(o.groups, 1, kLargestShape));
  group.add("--group-dtype", "fp32|bf16 [fp32]",
            "type of the gradient sums of groups on their way to the rank that adds them; bf16 "
            "halves their bytes and rounds each of them: a part of the arithmetic",
            choice(o.group_dtype, kSumTypes));
}

void add_template_flag(FlagGroup group, TrainOptions& o) {
  group.add("--chat-template", "FILE [the tokenizer's]",
            "the Jinja template that makes a text of a conversation", path(o.chat_template));
}

void add_file_flags(FlagGroup group, TrainOptions& o) {
  group.add_list("--data", "PATH...",
                 "text: files, folders of them, or JSON lines with \"text\" or \"messages\" "
                 "(.jsonl, .json, also "
                 "packed by gzip), which get the tokens of the model; or .bin files of tokens "
                 "(tools/tokenize.py makes them)",
                 o.data);
  group.add("--token-type", "auto|bytes|u16|u32 [auto]",
            "type of the tokens in the files; auto = the header of a .bin file says it, and other "
            "files are text",
            choice(o.token_type, kTokenTypes));
  group.add(
      "--tokenizer", "DIR|train:N [the model's]",
      "the folder of a model whose tokenizer makes tokens of text; train:8192 = a vocabulary of "
      "8192 tokens that is trained on --data, for presets; checkpoints contain the tokenizer",
      tokenizer(o.tokenizer));
  add_template_flag(group, o);
  group.add("--labels", "FILE [the next tokens]",
            "int32, one label for each token of the data: the target at its position, so labels "
            "are shifted; -100 = ignored",
            path(o.labels));
  group.add(
      "--documents", "FILE",
      "int64, the positions in the data where documents begin; attention and position ids restart "
      "there",
      path(o.documents));
}

void add_data_flags(FlagGroup group, TrainOptions& o) {
  add_file_flags(group, o);
  group.add("--order", "shuffled|sequential [shuffled]",
            "shuffle the samples in each epoch, or read them in the order of the files",
            choice(o.order, kOrders));
  group.add("--steps", "N [100]", "number of optimizer steps", whole(o.steps, 1));
  group.add("--epochs", "N", "passes over the data, instead of --steps", whole(o.epochs, 1));
  add_shape_flags(group, o);
  group.add_list("--eval-data", "PATH...", "data for the evaluation loss, like --data",
                 o.eval_data);
  group.add("--eval-labels", "FILE", "like --labels, for --eval-data", path(o.eval_labels));
  group.add("--eval-documents", "FILE", "like --documents, for --eval-data",
            path(o.eval_documents));
  group.add(
      "--eval-split", "P%",
      "instead of --eval-data: hold this share of the training samples out for the evaluation; "
      "the hash of its tokens decides about a sample",
      share(o.eval_split));
  group.add("--eval-steps", "N [100]", "evaluate every N steps, and after the last step",
            whole(o.eval_steps, 1));
  group.add("--eval-batches", "N [16]", "micro-batches in an evaluation", whole(o.eval_batches, 1));
  group.add("--early-stop", "N", "end the run after N evaluations without a lower loss",
            whole(o.early_stop, 1));
  group.add("--sample-steps", "N",
            "print a continuation of --sample-prompt every N steps, and after the last step",
            whole(o.sample_steps, 1));
  group.add(
      "--sample-prompt", "TEXT [The]",
      "the text that --sample-steps continues; if --data is conversations, the message that it "
      "answers",
      text(o.sample_prompt));
}

void add_clip_flag(FlagGroup group, TrainOptions& o) {
  group.add("--max-grad-norm,--clip", "C [1.0]", "clip the global norm of the gradient; 0 = off",
            real(o.max_grad_norm, kNotNegative));
}

void add_optimizer_flags(FlagGroup group, TrainOptions& o) {
  group.add("--lr", "X [3e-4; loaded weights: 1e-5]", "peak learning rate",
            real(o.learning_rate, kPositive));
  group.add("--min-lr", "X [lr/10; loaded weights: 0]", "learning rate at the end of the schedule",
            real(o.min_learning_rate, kMinLearningRate));
  group.add("--warmup-steps", "N [0]", "first steps, in which the learning rate rises",
            whole(o.warmup_steps, 0));
  group.add("--warmup-ratio", "R", "warmup steps as a share of all steps",
            real(o.warmup_ratio, kRatio));
  group.add("--lr-schedule", "constant|linear|cosine [cosine]",
            "how the learning rate changes from --lr to --min-lr",
            choice(o.lr_schedule, kSchedules));
  group.add("--weight-decay", "X [0.1; loaded weights: 0]",
            "weight decay of tensors with two or more dimensions",
            real(o.weight_decay, kNotNegative));
  group.add("--beta1", "X [0.9]", "AdamW's decay of the momentum", real(o.beta1, kBelowOne));
  group.add("--beta2", "X [0.95]", "AdamW's decay of the variance", real(o.beta2, kBelowOne));
  group.add("--epsilon", "X [1e-8]", "AdamW's epsilon, added to the denominator",
            real(o.epsilon, kEpsilon));
  add_clip_flag(group, o);
  group.add("--dropout", "P [0]",
            "probability of dropout in training, where the architecture has dropout",
            real(o.dropout, kBelowOne));
}

void add_device_flags(FlagGroup group, TrainOptions& o) {
  group.add("--device", "auto|host|cuda [auto]",
            "auto = cuda if a GPU is usable, else host (= cpu)", choice(o.device, kDevices));
  group.add("--device-memory",
            "SIZE [host: what the model needs; cuda: the free memory less a margin]",
            "budget for everything on the device", size(o.device_memory));
  group.add("--host-memory", "SIZE [what the machine or its cgroup allows]",
            "budget for everything in host memory", size(o.host_memory));
  group.add(
      "--pinned", "SIZE [all host memory that a GPU copies, if possible]",
      "limit for pinned host memory; other host memory is copied through pinned buffers, which is "
      "slower",
      size(o.pinned));
  group.add("--chunk-size", "SIZE [64MiB]",
            "bytes of a chunk, the unit in which weights and gradients are copied",
            size(o.chunk_size));
  group.add(
      "--link", "SIZE/s[,SIZE/s]", "host only: emulate a link of this bandwidth up[,down]",
      [&o](std::string_view flag, std::string_view value) { o.link = link_value(flag, value); });
  group.add("--threads", "N [all cores]", "threads of host kernels and of the optimizer",
            whole(o.threads, 1, 4096));
  group.add("--arithmetic", "auto|fp32|bf16-dot [auto]",
            "host only: how bf16 matrices are multiplied; auto = the faster on this processor",
            choice(o.arithmetic, kArithmetics));
  group.add("--attention", "auto|ebb|cudnn [auto]",
            "cuda only: whose attention kernels run; auto = cuDNN's if it is installed",
            choice(o.attention, kAttentions));
}

void add_memory_flags(FlagGroup group, TrainOptions& o) {
  add_device_flags(group, o);
  group.add(
      "--recompute", "none|norms|mlp|attention|layer|sqrt|N|auto [auto]",
      "drop activations inside layers and compute them again in the backward: outputs of norms and "
      "activation functions; also the MLP's inner product; also attention; all, N layers at once",
      recompute(o.schedule.recompute));
  group.add_flag("--gradient-checkpointing", "the same as --recompute layer",
                 [&o] { o.schedule.recompute = kRecomputeEach; });
  group.add(
      "--activations", "device|offload|auto [auto]",
      "keep activations on the device until the backward, or in host memory; auto = the faster by "
      "prediction",
      choice(o.schedule.activations, kActivations));
  group.add(
      "--micro-batch-order", "horizontal|vertical|auto [auto]",
      "the micro-batches of a step run one after the other through the whole model, or all of them "
      "layer by layer; auto = the faster order",
      choice(o.schedule.micro_batch_order, kMicroBatchOrders));
  group.add(
      "--update", "overlap|wait|speculate|auto|delayed [auto]",
      "overlap: updates run during the backward or the next forward; wait: they end before the "
      "step ends; speculate: some run before the gradient norm is known, and are undone if the "
      "gradient is clipped; auto = the fastest of these, with the same results; delayed changes "
      "the results: updates run during the whole next step, which computes with the weights before "
      "them, and write a second copy of the weights",
      [&o](std::string_view flag, std::string_view text) {
        const auto chosen = choice_value<UpdateChoice>(flag, text, kUpdates);
        o.schedule.update = chosen.order;
        o.delayed_updates = chosen.is_delayed;
      });
  group.add("--emulate-compute,--pretend", "FLOP/s[,SIZE/s]",
            "host only: kernels sleep for their predicted time at this rate of arithmetic[,of "
            "memory] instead of computing; there are no losses",
            [&o](std::string_view flag, std::string_view value) {
              o.emulate_compute = compute_rates_value(flag, value);
            });
}

/// "0,2": different numbers.
std::vector<int> device_numbers(std::string_view flag, std::string_view text) {
  std::vector<int> numbers;
  for (size_t begin = 0; begin <= text.size();) {
    const size_t end = std::min(text.find(',', begin), text.size());
    const std::string_view number = text.substr(begin, end - begin);
    numbers.push_back(static_cast<int>(whole_value(flag, number, 0, kMostRanks - 1)));
    if (std::ranges::count(numbers, numbers.back()) > 1) {
      throw_bad_value(flag, text, "each GPU once");
    }
    begin = end + 1;
  }
  return numbers;
}

Setter network(TrainOptions& o) {
  return [&o](std::string_view flag, std::string_view text) {
    o.network_bytes_per_s = network_value(flag, text);
  };
}

void add_rank_flags(FlagGroup group, TrainOptions& o) {
  group.add("--ranks", "N [1, or as mpirun, torchrun or srun says]",
            "processes on this machine that train one model together, each with some of the "
            "micro-batches; host memory and threads are divided among them; --device-memory is of "
            "each",
            whole(o.ranks, 1, kMostRanks));
  group.add("--devices", "N,... [all GPUs, in turn]",
            "the GPUs of the ranks of a machine, by the numbers that `ebb devices` gives them; "
            "without --ranks, there is a rank for each",
            [&o](std::string_view flag, std::string_view text) {
              o.devices = device_numbers(flag, text);
            });
  group.add("--rank-timeout", "SECONDS [60]",
            "the run ends if a rank waits and no rank gets further for so long",
            whole(o.rank_timeout_s, 3, 86400));
  group.add("--rank-transport", "HOW [auto]",
            "how ranks reach each other: auto = shared memory, and MPI between the machines of "
            "mpirun or srun; shared = never MPI; mpi = MPI, as if each rank were on another "
            "machine",
            choice(o.rank_transport, kRankTransports));
  group.add(
      "--network", "SIZE/s [as fast as MPI]",
      "with --rank-transport mpi: emulate a network with this bandwidth of each rank, in each "
      "direction",
      network(o));
}

void add_planned_ranks_flags(FlagGroup group, TrainOptions& o) {
  group.add("--ranks", "N [1]",
            "processes of all machines together that train one model, each with a device; "
            "--host-memory, --pinned and --threads are of each machine, and divided among its "
            "ranks; --device-memory is of each rank",
            whole(o.ranks, 1, kMostPlannedRanks));
  group.add("--nodes", "M [1]",
            "machines on which the ranks are, the same number on each; all are as --machine says",
            whole(o.nodes, 1, kMostPlannedRanks));
  group.add("--network", "SIZE/s [network_bytes_per_s of the machine]",
            "what a machine can receive from the others, and send to them", network(o));
}

void add_output_flags(FlagGroup group, TrainOptions& o) {
  group.add("--log", "FILE",
            "write one JSON line for each step; a file of another run is renamed to FILE.1",
            text(o.log));
  group.add("--trace", "FILE",
            "write the timeline of every step as Chrome trace JSON (opens in Perfetto)",
            text(o.trace));
  group.add("--save", "DIR",
            "write checkpoints DIR/step-N: every --save-steps, and when the run ends or is stopped",
            text(o.save));
  group.add("--save-steps", "N [500]", "save every N steps, while the training continues",
            whole(o.save_steps, 1));
  group.add(
      "--save-keep", "N [all]",
      "keep only the newest N checkpoints; older ones are removed after a new one is complete",
      whole(o.save_keep, 1));
  group.add_flag("--save-weights-only",
                 "save only the weights; a run cannot resume from such a checkpoint",
                 [&o] { o.save_weights_only = true; });
  group.add_flag("--save-best",
                 "also save when an evaluation has the lowest loss so far; DIR/best leads to that "
                 "checkpoint, and --save-keep does not remove it",
                 [&o] { o.save_best = true; });
  group.add("--save-dtype", "fp32|bf16|fp16 [as --dtype]", "type of the weights in a checkpoint",
            choice(o.save_dtype, kTypes));
  group.add_optional(
      "--resume", "[DIR]",
      "continue from a checkpoint, or from the newest one in a folder [of --save]; flags that are "
      "not given have the values of the checkpoint",
      text(o.resume));
  group.add_flag("--dry-run", "print the plan and exit, with code 0, or 3 if the plan does not fit",
                 [&o] { o.dry_run = true; });
}

}  // namespace

void add_train_flags(CommandLine& line, TrainOptions& options) {
  add_model_flags({line, "Model"}, options);
  add_gradient_type_flag({line, "Model"}, options);
  add_data_flags({line, "Data"}, options);
  add_optimizer_flags({line, "Optimizer"}, options);
  add_memory_flags({line, "Memory"}, options);
  add_rank_flags({line, "Ranks"}, options);
  add_output_flags({line, "Output"}, options);
}

void add_planned_flags(CommandLine& line, TrainOptions& options) {
  add_model_flags({line, "Model"}, options);
  add_gradient_type_flag({line, "Model"}, options);
  add_shape_flags({line, "Step"}, options);
  add_clip_flag({line, "Step"}, options);
  add_memory_flags({line, "Memory"}, options);
  add_planned_ranks_flags({line, "Ranks"}, options);
}

void add_inference_flags(CommandLine& line, TrainOptions& options) {
  add_model_flags({line, "Model"}, options);
  add_device_flags({line, "Memory"}, options);
}

void add_tokenizer_flags(CommandLine& line, const std::string& name, TrainOptions& o) {
  FlagGroup group{line, name};
  group.add("--tokenizer", "DIR [the model's]", "the folder of a model whose tokenizer is used",
            path(o.tokenizer));
  add_template_flag(group, o);
}

void add_evaluated_data_flags(CommandLine& line, TrainOptions& options) {
  add_file_flags({line, "Data"}, options);
  add_micro_batch_flags({line, "Data"}, options);
}

}  // namespace ebb
