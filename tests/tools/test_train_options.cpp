#include <fmt/format.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "device/errors.h"
#include "tests/tools/run_ebb.h"
#include "tools/cli.h"
#include "tools/run_config.h"
#include "tools/train_flags.h"
#include "tools/train_setup.h"

namespace ebb {
namespace {

TrainOptions parse(Arguments arguments) {
  CommandLine line("test", "ebb train");
  TrainOptions options;
  add_train_flags(line, options);
  EXPECT_TRUE(parse_arguments(line, std::move(arguments), true));
  validate(options);
  return options;
}

/// Parses the arguments after the flags that every run needs.
TrainOptions parse_with(Arguments arguments) {
  arguments.insert(arguments.begin(), {"--preset", "gpt2", "--data", "x"});
  return parse(std::move(arguments));
}

TEST(TrainOptions, LoadedWeightsHaveGentleDefaults) {
  const TrainOptions loaded = parse({"--model", "m", "--data", "x"});
  EXPECT_EQ(loaded.peak_learning_rate(), 1e-5);
  EXPECT_EQ(loaded.final_learning_rate(), 0);
  EXPECT_EQ(loaded.decay(), 0);
  const TrainOptions requested = parse(
      {"--model", "m", "--data", "x", "--lr", "1e-3", "--min-lr", "1e-4", "--weight-decay", "0.2"});
  EXPECT_EQ(requested.peak_learning_rate(), 1e-3);
  EXPECT_EQ(requested.final_learning_rate(), 1e-4);
  EXPECT_EQ(requested.decay(), 0.2);
  const TrainOptions random = parse({"--model", "m", "--init", "random", "--data", "x"});
  EXPECT_EQ(random.peak_learning_rate(), 3e-4);
  EXPECT_EQ(random.decay(), 0.1);
}

ConfigError error_of(Arguments arguments) {
  return test::error_of<ConfigError>([&] { parse_with(std::move(arguments)); });
}

/// The kernels use these values in fp32, where they must be neither denormal nor infinite.
TEST(TrainOptions, ValuesOutsideOfFp32AreRefusedWithTheWholeRange) {
  for (const std::string flag : {"--lr", "--min-lr", "--weight-decay", "--epsilon",
                                 "--max-grad-norm", "--dropout", "--beta1", "--beta2"}) {
    for (const std::string value : {"1e-46", "1e-40", "1e-38", "1e39", "1e300"}) {
      const auto error = error_of({flag, value});
      EXPECT_SAYS(error, flag + " '" + value + "': allowed is ");
      EXPECT_SAYS(error, "a number from 1e-");
      EXPECT_SAYS(error, " to ");
    }
  }
  EXPECT_SAYS(error_of({"--epsilon", "1e-30"}), "a number from 1e-20 to 1e+30");
  EXPECT_SAYS(error_of({"--dropout", "0.9999999999"}),
              "--dropout '0.9999999999': allowed is 0, or");
  EXPECT_SAYS(error_of({"--lr", "0"}), "allowed is a number above 0");
  EXPECT_EQ(parse_with({"--max-grad-norm", "0"}).max_grad_norm, 0);
  const TrainOptions least = parse_with({"--lr", "1e-30"});
  // A checkpoint contains this value, and it must be allowed when the run resumes.
  EXPECT_EQ(parse_with({"--lr", "1e-30", "--min-lr", fmt::to_string(least.final_learning_rate())})
                .final_learning_rate(),
            least.final_learning_rate());
  EXPECT_LT(static_cast<float>(parse_with({"--dropout", "0.9999999"}).dropout), 1.0f);
}

TEST(TrainOptions, ChunkSizesAreShownInBytes) {
  EXPECT_SAYS(error_of({"--chunk-size", "262145"}), "--chunk-size '262145 bytes': allowed is a");
}

TEST(TrainOptions, DefaultsAreThoseOfTheHelpText) {
  const TrainOptions o = parse_with({});
  EXPECT_EQ(o.token_type, TokenType::Auto);
  EXPECT_EQ(o.order, DataOrder::Shuffled);
  EXPECT_FALSE(o.steps || o.epochs || o.seq_length);
  EXPECT_EQ(o.micro_batch_size, 4u);
  EXPECT_EQ(o.gradient_accumulation, 1u);
  EXPECT_EQ(o.peak_learning_rate(), 3e-4);
  EXPECT_DOUBLE_EQ(o.final_learning_rate(), 3e-5);
  EXPECT_EQ(o.steps_per_evaluation(), 100u);
  EXPECT_EQ(o.batches_per_evaluation(), 16u);
  EXPECT_EQ(o.steps_per_save(), 500u);
  EXPECT_FALSE(o.warmup_steps || o.warmup_ratio);
  EXPECT_EQ(o.lr_schedule, ScheduleShape::Cosine);
  EXPECT_EQ(o.decay(), 0.1);
  EXPECT_EQ(o.beta1, 0.9);
  EXPECT_EQ(o.beta2, 0.95);
  EXPECT_EQ(o.epsilon, 1e-8);
  EXPECT_EQ(o.max_grad_norm, 1.0);
  EXPECT_EQ(o.dtype, DType::BF16);
  EXPECT_FALSE(o.gradient_dtype || o.device_memory || o.host_memory);
  EXPECT_EQ(o.device, DeviceChoice::Auto);
  EXPECT_EQ(o.chunk_size, size_t{64} << 20);
  EXPECT_EQ(o.schedule, ScheduleRequest{});
  EXPECT_FALSE(o.dry_run);
  EXPECT_EQ(o.seed, 1u);
}

TEST(TrainOptions, EveryFlagIsRead) {
  const TrainOptions o = parse({"--preset",
                                "gpt2-bytes",
                                "--data",
                                "a",
                                "b",
                                "--token-type",
                                "u16",
                                "--order",
                                "sequential",
                                "--tokenizer",
                                "train:300",
                                "--chat-template",
                                "t",
                                "--early-stop",
                                "4",
                                "--sample-steps",
                                "9",
                                "--sample-prompt",
                                "Say",
                                "--steps",
                                "7",
                                "--micro-batch-size",
                                "2",
                                "--gradient-accumulation",
                                "3",
                                "--seq-length",
                                "64",
                                "--lr",
                                "1e-3",
                                "--min-lr",
                                "1e-5",
                                "--warmup-steps",
                                "5",
                                "--lr-schedule",
                                "linear",
                                "--weight-decay",
                                "0",
                                "--beta1",
                                "0.8",
                                "--beta2",
                                "0.99",
                                "--epsilon",
                                "1e-6",
                                "--clip",
                                "0",
                                "--dtype",
                                "fp32",
                                "--gradient-dtype",
                                "bf16",
                                "--group-dtype",
                                "bf16",
                                "--device",
                                "cpu",
                                "--device-memory",
                                "1GiB",
                                "--host-memory",
                                "2GB",
                                "--chunk-size",
                                "8MiB",
                                "--recompute",
                                "block",
                                "--micro-batch-order",
                                "vertical",
                                "--update",
                                "wait",
                                "--link",
                                "12GB/s,6GB/s",
                                "--threads",
                                "2",
                                "--seed",
                                "9",
                                "--eval-data",
                                "c",
                                "--eval-steps",
                                "10",
                                "--eval-batches",
                                "4",
                                "--log",
                                "l",
                                "--dry-run"});
  EXPECT_EQ(o.preset, "gpt2-bytes");
  EXPECT_EQ(o.data, (std::vector<std::string>{"a", "b"}));
  EXPECT_EQ(o.token_type, TokenType::U16);
  EXPECT_EQ(o.order, DataOrder::Sequential);
  EXPECT_EQ(o.steps, 7u);
  EXPECT_EQ(o.micro_batch_size, 2u);
  EXPECT_EQ(o.gradient_accumulation, 3u);
  EXPECT_EQ(o.seq_length, 64u);
  EXPECT_EQ(o.learning_rate, 1e-3);
  EXPECT_EQ(o.min_learning_rate, 1e-5);
  EXPECT_EQ(o.warmup_steps, 5u);
  EXPECT_EQ(o.lr_schedule, ScheduleShape::Linear);
  EXPECT_EQ(o.weight_decay, 0);
  EXPECT_EQ(o.beta1, 0.8);
  EXPECT_EQ(o.beta2, 0.99);
  EXPECT_EQ(o.epsilon, 1e-6);
  EXPECT_EQ(o.max_grad_norm, 0);
  EXPECT_EQ(o.dtype, DType::F32);
  EXPECT_EQ(o.gradient_dtype, DType::BF16);
  EXPECT_EQ(o.group_dtype, DType::BF16);
  EXPECT_EQ(o.device, DeviceChoice::Host);
  EXPECT_EQ(o.device_memory, size_t{1} << 30);
  EXPECT_EQ(o.host_memory, 2'000'000'000u);
  EXPECT_EQ(o.chunk_size, size_t{8} << 20);
  EXPECT_EQ(o.schedule.recompute, RecomputeRequest(kRecomputeEach));
  EXPECT_EQ(o.schedule.update, UpdateOrder::Wait);
  EXPECT_EQ(o.schedule.micro_batch_order, MicroBatchOrder::Vertical);
  EXPECT_EQ(o.link.load_bytes_per_s, 12e9);
  EXPECT_EQ(o.link.store_bytes_per_s, 6e9);
  EXPECT_EQ(o.threads, 2u);
  EXPECT_EQ(o.seed, 9u);
  EXPECT_EQ(o.eval_data, (std::vector<std::string>{"c"}));
  EXPECT_EQ(o.eval_steps, 10u);
  EXPECT_EQ(o.eval_batches, 4u);
  EXPECT_EQ(o.tokenizer, "train:300");
  EXPECT_EQ(o.chat_template, "t");
  EXPECT_EQ(o.early_stop, 4u);
  EXPECT_EQ(o.sample_steps, 9u);
  EXPECT_EQ(o.sample_prompt, "Say");
  EXPECT_EQ(o.log, "l");
  EXPECT_TRUE(o.dry_run);
}

TEST(TrainOptions, DevicesAreDealtToTheRanksOfAMachine) {
  const std::vector<int> chosen = parse_with({"--devices", "2,0"}).devices;
  EXPECT_EQ(chosen, (std::vector{2, 0}));
  const auto gpus_of = [](const std::vector<int>& devices, uint32_t num_ranks,
                          uint32_t num_machines) {
    std::vector<int> gpus;
    for (uint32_t rank = 0; rank < num_ranks; ++rank) {
      gpus.push_back(gpu_of_rank(devices, {rank, num_ranks, num_machines}, 4));
    }
    return gpus;
  };
  EXPECT_EQ(gpus_of(chosen, 2, 1), (std::vector{2, 0}));
  EXPECT_EQ(gpus_of(chosen, 4, 2), (std::vector{2, 0, 2, 0}));
  EXPECT_EQ(gpus_of({3}, 1, 1), std::vector{3});
  EXPECT_EQ(gpus_of({}, 6, 2), (std::vector{0, 1, 2, 0, 1, 2}));
  EXPECT_EQ(gpus_of({}, 5, 1), (std::vector{0, 1, 2, 3, 0}));
  EXPECT_SAYS(error_of({"--devices", "1,1"}), "each GPU once");
  EXPECT_SAYS(error_of({"--devices", "0,,1"}), "--devices");
  EXPECT_SAYS(test::error_of<ConfigError>([] {
                gpu_of_rank(std::vector{0, 4}, {}, 4);
              }),
              "--devices 0,4: this machine has 4 GPUs, numbered from 0");
}

TEST(TrainOptions, OtherNamesAreAccepted) {
  EXPECT_EQ(parse_with({"--max-seq-length", "8"}).seq_length, 8u);
  EXPECT_EQ(parse_with({"--max-grad-norm", "2"}).max_grad_norm, 2);
  const auto recompute_with = [](std::vector<std::string> flags) {
    return parse_with(std::move(flags)).schedule.recompute.value();
  };
  EXPECT_EQ(recompute_with({"--gradient-checkpointing"}), RecomputeRequest(kRecomputeEach));
  EXPECT_EQ(recompute_with({"--recompute", "sqrt"}), RecomputeRequest(SquareRootOfLayers{}));
  EXPECT_EQ(recompute_with({"--recompute", "3"}), RecomputeRequest(recompute_together(3)));
  EXPECT_EQ(parse_with({"--activations", "offload"}).schedule.activations,
            ActivationPlacement::Offload);
  EXPECT_EQ(parse_with({"--lr=0.5"}).learning_rate, 0.5);
  EXPECT_EQ(parse_with({"--eval-split", "5%"}).eval_split, 0.05);
  EXPECT_EQ(parse_with({"--eval-split", "0.05"}).eval_split, 0.05);
}

TEST(TrainOptions, BadValuesAreNamed) {
  EXPECT_SAYS(error_of({"--steps", "0"}), "--steps '0': allowed is a whole number, at least 1");
  EXPECT_SAYS(error_of({"--steps", "-3"}), "--steps '-3'");
  EXPECT_SAYS(error_of({"--micro-batch-size", "0"}), "--micro-batch-size '0'");
  EXPECT_SAYS(error_of({"--gradient-accumulation", "1.5"}), "--gradient-accumulation '1.5'");
  EXPECT_SAYS(error_of({"--max-seq-length", "-1"}), "--seq-length '-1'");
  EXPECT_SAYS(error_of({"--dropout", "1"}), "--dropout '1'");
  EXPECT_SAYS(error_of({"--dropout", "-0.1"}), "--dropout '-0.1'");
  EXPECT_SAYS(error_of({"--dtype", "fp8"}), "one of fp32, bf16, fp16");
  EXPECT_SAYS(error_of({"--gradient-dtype", "fp16"}), "--gradient-dtype fp16 needs --dtype fp16");
  EXPECT_SAYS(error_of({"--recompute", "some"}),
              "one of none, norms, mlp, attention, layer, block, sqrt, auto");
  EXPECT_SAYS(error_of({"--recompute", "0"}), "a whole number from 1");
  EXPECT_SAYS(error_of({"--update", "never"}), "one of auto, delayed, overlap, speculate, wait");
  EXPECT_SAYS(error_of({"--lr", "nan"}), "--lr 'nan'");
  EXPECT_SAYS(error_of({"--min-lr", "1"}),
              "--min-lr '1': allowed is a number from 0 to --lr 0.0003");
  EXPECT_SAYS(error_of({"--device-memory", "lots"}), "--device-memory 'lots'");
  EXPECT_SAYS(error_of({"--link", "12GB"}), "12GB/s,6GB/s");
  EXPECT_SAYS(error_of({"--emulate-compute", "100"}),
              "--emulate-compute '100': allowed is a rate like 100TFLOP/s");
  EXPECT_SAYS(error_of({"--clip", "-1"}), "--max-grad-norm '-1'");
}

TEST(TrainOptions, ImpossibleCombinationsAreNamed) {
  EXPECT_SAYS(error_of({"--steps", "1", "--epochs", "1"}), "exclude each other");
  EXPECT_SAYS(error_of({"--warmup-steps", "1", "--warmup-ratio", "0.1"}), "exclude each other");
  EXPECT_SAYS(error_of({"--eval-steps", "5"}), "--eval-steps needs --eval-data");
  EXPECT_SAYS(error_of({"--eval-batches", "5"}), "--eval-batches needs --eval-data");
  EXPECT_SAYS(error_of({"--device", "cuda", "--link", "1GB/s"}), "--link");
  EXPECT_SAYS(error_of({"--device", "cuda", "--pretend", "1TFLOP/s"}), "--emulate-compute");
  EXPECT_THROW(parse({"--data", "x"}), ConfigError);
  EXPECT_THROW(parse({"--preset", "gpt2"}), ConfigError);
}

TEST(TrainOptions, UnknownFlagsAreErrors) {
  for (const char* flag :
       {"--bogus", "--model", "--dropout", "--save", "--trace", "--pinned", "-x"}) {
    EXPECT_SAYS(error_of({flag}), flag);
  }
  EXPECT_SAYS(error_of({"--log"}), "--log");
  EXPECT_SAYS(error_of({"--steps", "1", "--steps", "2"}), "--steps");
}

}  // namespace
}  // namespace ebb
