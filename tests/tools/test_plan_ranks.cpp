// `ebb plan --ranks`: all ranks of a machine together, and of several machines.
#include <algorithm>
#include <sstream>
#include <string>
#include <vector>

#include "tests/tools/plan_command.h"
#include "tools/planned_machine.h"

namespace ebb {
namespace {

using Json = nlohmann::json;

class PlanRanks : public PlanCommand {
 protected:
  /// GPT-2 on four GPUs, of which each has little memory.
  Json planned(int num_ranks, const Arguments& more = {}) const {
    return plan_json(kGpt + Arguments{"--ranks", std::to_string(num_ranks)} + more);
  }
  /// A machine file: four RTX 4090 with a host memory of this rate.
  std::string machine_with(double host_bytes_per_s) const {
    PlannedMachine machine = find_machine("rtx4090-x4");
    machine.rates.host_bytes_per_s = host_bytes_per_s;
    if (machine.optimistic) machine.optimistic->host_bytes_per_s = host_bytes_per_s;
    return folder_.write("machine.json", to_json(machine));
  }

  const Arguments kShape = {"--preset",           "gpt2", "--gradient-accumulation", "4",
                            "--micro-batch-size", "1",    "--device-memory",         "1GiB",
                            "--chunk-size",       "16MiB"};
  const Arguments kGpt = kShape + Arguments{"--machine", "rtx4090-x4"};
};

TEST_F(PlanRanks, AddUp) {
  const Json two = planned(2);
  EXPECT_EQ(two["ranks"]["ranks"], 2);
  EXPECT_EQ(two["ranks"]["groups"], 4);
  EXPECT_GE(two["predicted_seconds"], two["bound_seconds"]);
  size_t host_bytes = 0, sums = 0;
  ASSERT_EQ(two["ranks"]["of_each"].size(), 2u);
  for (const Json& rank : two["ranks"]["of_each"]) {
    EXPECT_EQ(rank["micro_batches"], 2);
    host_bytes += rank["host_bytes"].get<size_t>();
    for (const Json& entry : rank["memory"]) {
      if (entry["class"] == "sums of groups") sums += entry["bytes"].get<size_t>();
    }
  }
  EXPECT_EQ(two["ranks"]["host_bytes"], host_bytes);
  EXPECT_GT(sums, 0u);
  EXPECT_EQ(two["host_bytes"], two["ranks"]["of_each"][0]["host_bytes"]);
  EXPECT_DOUBLE_EQ(
      two["ranks"]["speed_up"].get<double>(),
      two["ranks"]["one_rank_seconds"].get<double>() / two["predicted_seconds"].get<double>());
  EXPECT_EQ(two["ranks"]["one_rank_seconds"], plan_json(kGpt)["predicted_seconds"]);
  const std::string text = plan(kGpt + Arguments{"--ranks", "2"}).out;
  EXPECT_SAYS(text, "ranks   2, each with 2 of 4 micro-batches; 4 groups; ");
  EXPECT_SAYS(text, "x the speed of one rank with its best plan");
  EXPECT_SAYS(text, "sums of groups");
  EXPECT_SAYS(text, "of all ranks");
}

/// The devices of an h100-x8 can read each other's memory, and those of an rtx4090-x4 cannot.
TEST_F(PlanRanks, SumsWaitOnDevicesThatReadEachOther) {
  const auto most_wait_on_devices = [&](const char* machine) {
    const Json plan = plan_json({"--preset", "gpt2", "--gradient-accumulation", "4",
                                 "--micro-batch-size", "1", "--chunk-size", "16MiB",
                                 "--device-memory", "4GiB", "--machine", machine, "--ranks", "2"});
    size_t host_bytes = 0, device_bytes = 0;
    for (const Json& entry : plan["memory"]) {
      if (entry["class"] != "sums of groups") continue;
      (entry["tier"] == "host" ? host_bytes : device_bytes) += entry["bytes"].get<size_t>();
    }
    EXPECT_GT(host_bytes + device_bytes, 0u);
    return device_bytes > host_bytes;
  };
  EXPECT_TRUE(most_wait_on_devices("h100-x8"));
  EXPECT_FALSE(most_wait_on_devices("rtx4090-x4"));
}

TEST_F(PlanRanks, OneIsNoFlag) { EXPECT_EQ(planned(1), plan_json(kGpt)); }

/// Slow host memory becomes the bound, and more ranks do not help then.
TEST_F(PlanRanks, ShareTheHostMemory) {
  const auto with = [&](double rate, int num_ranks) {
    return plan_json(kShape + Arguments{"--machine", machine_with(rate), "--groups", "4", "--ranks",
                                        std::to_string(num_ranks)});
  };
  const Json fast = with(0, 4), slow = with(5e9, 4);
  EXPECT_NE(fast["bound_by"], "host memory");
  EXPECT_EQ(slow["bound_by"], "host memory");
  EXPECT_GT(slow["predicted_seconds"], 2 * fast["predicted_seconds"].get<double>());
  EXPECT_GT(slow["stream_seconds"]["host memory"], 0);
  EXPECT_EQ(fast["stream_seconds"]["host memory"], 0);
  EXPECT_GT(fast["ranks"]["speed_up"], slow["ranks"]["speed_up"]);
}

TEST_F(PlanRanks, DivideTheHostMemory) {
  const Json four = planned(4, {"--groups", "4"});
  size_t most = 0;
  for (const Json& rank : four["ranks"]["of_each"]) {
    most = std::max(most, rank["host_bytes"].get<size_t>());
  }
  const auto with = [&](size_t bytes) {
    return plan(kGpt +
                Arguments{"--ranks", "4", "--groups", "4", "--host-memory", std::to_string(bytes)});
  };
  EXPECT_EQ(with(4 * most).exit_code, 0);
  const Outcome less = with(most);
  EXPECT_EQ(less.exit_code, 3) << less.out;
  EXPECT_SAYS(less.out, "each has 1/4 of the host memory");
}

TEST_F(PlanRanks, AsManyAsTheMachineHasDevices) {
  EXPECT_FAILS(plan(kGpt + Arguments{"--ranks", "5"}), 2,
               "--ranks 5: the machine 'rtx4090-x4' has 4 devices, so give --ranks 4");
  EXPECT_FAILS(plan(kShape + Arguments{"--machine", "rtx4090", "--ranks", "2"}), 2,
               "has 1 device, so give --ranks 1");
  EXPECT_FAILS(plan(kGpt + Arguments{"--ranks", "3", "--groups", "2"}), 2, "try --groups 3");
  EXPECT_EQ(find_machine("h100-x8").num_devices, 8);
  EXPECT_EQ(find_machine(machine_with(1e11)).num_devices, 4);
}

TEST_F(PlanRanks, OfSeveralMachinesShareTheNetwork) {
  const auto with = [&](const char* network, const char* nodes) {
    return planned(4, {"--groups", "4", "--nodes", nodes, "--network", network});
  };
  const Json fast = with("100GB/s", "2"), slow = with("100MB/s", "2");
  EXPECT_EQ(fast["ranks"]["nodes"], 2);
  EXPECT_EQ(fast["ranks"]["simulated"], 4);
  EXPECT_NE(fast["bound_by"], "network");
  EXPECT_EQ(slow["bound_by"], "network");
  EXPECT_EQ(slow["bound_seconds"], slow["stream_seconds"]["network"]);
  EXPECT_GE(slow["predicted_seconds"], slow["bound_seconds"]);
  EXPECT_GT(slow["predicted_seconds"], 2 * fast["predicted_seconds"].get<double>());
  EXPECT_EQ(with("100MB/s", "1")["stream_seconds"]["network"], 0);
  // Each machine fetches the weights of the other once, 2 bytes per parameter for both together. It
  // also receives the sums of two groups for the chunks of its two ranks: half of the parameters,
  // where the tied one counts twice.
  size_t host_bytes = 0;
  double fetched = 0;
  for (const Json& rank : slow["ranks"]["of_each"]) {
    fetched += rank["fetched_bytes"].get<double>();
    host_bytes += rank["host_bytes"].get<size_t>();
  }
  const double parameters = slow["parameters"].get<double>(), tied = 50257.0 * 768;
  EXPECT_NEAR(fetched / (2 * parameters), 1, 0.01);
  const double of_machine = fetched / 2 + 4 * 2 * (parameters + tied) / 2;
  EXPECT_NEAR(slow["stream_seconds"]["network"].get<double>() * 1e8 / of_machine, 1, 0.1);
  EXPECT_EQ(slow["ranks"]["host_bytes"], host_bytes);
  EXPECT_GE(slow["ranks"]["machine_host_bytes"], host_bytes / 2);
  const std::string text =
      plan(kGpt + Arguments{"--ranks", "4", "--groups", "4", "--nodes", "2"}).out;
  EXPECT_SAYS(text, "ranks   4 on 2 machines, each with 1 of 4 micro-batches");
  EXPECT_SAYS(text, " from other machines for all ranks of its machine, and stores ");
  EXPECT_SAYS(text, "the ranks of a machine ");
  EXPECT_SAYS(text, "of a machine   of all ranks");
  EXPECT_SAYS(text, "12.5 to 25 network");
}

/// Sums in bf16 take half of the memory, and are half of what stores and the network move.
TEST_F(PlanRanks, RoundedSumsTakeHalfOfTheBytes) {
  const auto with = [&](const char* type, const char* nodes) {
    return planned(4, {"--groups", "4", "--nodes", nodes, "--network", "100MB/s", "--group-dtype",
                       type, "--micro-batch-order", "vertical", "--recompute", "none"});
  };
  const auto memory_of_sums = [](const Json& plan, const char* tier) {
    size_t bytes = 0;
    for (const Json& entry : plan["memory"]) {
      if (entry["class"] == "sums of groups" && entry["tier"] == tier) {
        bytes += entry["bytes"].get<size_t>();
      }
    }
    return bytes;
  };
  const Json exact = with("fp32", "1"), rounded = with("bf16", "1");
  EXPECT_EQ(exact["ranks"]["group_dtype"], "fp32");
  EXPECT_EQ(rounded["ranks"]["group_dtype"], "bf16");
  EXPECT_EQ(exact["ranks"]["one_rank_seconds"], rounded["ranks"]["one_rank_seconds"]);
  EXPECT_EQ(memory_of_sums(exact, "device"), 0u);
  EXPECT_EQ(memory_of_sums(rounded, "device"), size_t{8} << 20) << "half of a chunk of 16 MiB";
  EXPECT_NEAR(static_cast<double>(memory_of_sums(rounded, "host")) /
                  static_cast<double>(memory_of_sums(exact, "host")),
              0.5, 1e-3);
  ASSERT_GT(rounded["stored_bytes"], 0);
  EXPECT_EQ(exact["stored_bytes"], 2 * rounded["stored_bytes"].get<size_t>()) << "only sums";
  EXPECT_LT(rounded["predicted_seconds"], exact["predicted_seconds"]);
  // What the first machine receives, besides the weights that its two ranks fetch.
  const auto received_sums = [](const Json& plan) {
    const Json& ranks = plan["ranks"]["of_each"];
    return plan["stream_seconds"]["network"].get<double>() * 1e8 -
           ranks[0]["fetched_bytes"].get<double>() - ranks[1]["fetched_bytes"].get<double>();
  };
  const Json exact_of_two = with("fp32", "2"), rounded_of_two = with("bf16", "2");
  EXPECT_GT(received_sums(rounded_of_two), rounded_of_two["parameters"].get<double>());
  EXPECT_NEAR(received_sums(exact_of_two) / received_sums(rounded_of_two), 2, 1e-9);
  const Arguments four = kGpt + Arguments{"--ranks", "4", "--group-dtype"};
  EXPECT_SAYS(plan(four + Arguments{"bf16"}).out, "4 groups, whose sums are rounded to bf16; ");
  EXPECT_FAILS(plan(four + Arguments{"fp16"}), 2, "--group-dtype");
}

/// A thousand ranks are planned like one, and each has its memory.
TEST_F(PlanRanks, CanBeAThousand) {
  Arguments shape = kGpt;
  *std::ranges::find(shape, "4") = "1000";  // micro-batches
  const Json many = plan_json(shape + Arguments{"--ranks", "1000", "--nodes", "250"});
  const Json& ranks = many["ranks"];
  EXPECT_EQ(ranks["simulated"], 4);
  ASSERT_EQ(ranks["of_each"].size(), 1000u);
  // Of 15 chunks, each of the first 15 ranks owns one. The state has 12 bytes for each parameter.
  size_t state = 0;
  for (size_t rank = 0; rank < 1000; ++rank) {
    for (const Json& entry : ranks["of_each"][rank]["memory"]) {
      const std::string name = entry["class"];
      if (name == "weight" || name == "low" || name == "momentum" || name == "variance") {
        EXPECT_LT(rank, 15u);
        state += entry["bytes"].get<size_t>();
      }
    }
  }
  EXPECT_NEAR(static_cast<double>(state) / (12 * many["parameters"].get<double>()), 1, 0.001);
  EXPECT_SAYS(plan(shape + Arguments{"--ranks", "1000", "--nodes", "250"}).out,
              "4 ranks are simulated, and the others are taken to do the same at the same time");
}

TEST_F(PlanRanks, AreDividedAmongMachines) {
  EXPECT_FAILS(plan(kGpt + Arguments{"--ranks", "4", "--nodes", "3"}), 2,
               "4 ranks are not a multiple of 3; try --ranks 6");
  EXPECT_FAILS(plan(kGpt + Arguments{"--nodes", "2"}), 2, "try --ranks 2");
  EXPECT_FAILS(plan(kGpt + Arguments{"--ranks", "10", "--nodes", "2"}), 2,
               "2 machines 'rtx4090-x4' have 8 devices, so give --ranks 8");
  EXPECT_FAILS(plan(kShape + Arguments{"--machine", "rtx4090", "--ranks", "2", "--nodes", "2"}), 2,
               "the machine 'rtx4090' has no network_bytes_per_s; give --network");
  EXPECT_FAILS(plan(kGpt + Arguments{"--network", "400Gb/s"}), 2, "400 Gb/s are 50GB/s");
  EXPECT_FAILS(run({"train", "--preset", "toy-bytes", "--data", "x", "--network", "1GB/s"}), 2,
               "--network emulates a network between the ranks of one machine: it needs "
               "--rank-transport mpi");
}

TEST_F(PlanRanks, OnAHostShareTheCores) {
  PlannedMachine machine{.name = "two cores",
                         .device = "host",
                         .device_memory_bytes = size_t{24} << 30,
                         .host_memory_bytes = size_t{24} << 30,
                         .num_threads = 2};
  machine.rates = {.flops_per_s = 2e11,
                   .attention_flops_per_s = 1e11,
                   .vector_flops_per_s = 5e10,
                   .device_bytes_per_s = 2e10,
                   .load_bytes_per_s = 1e10,
                   .store_bytes_per_s = 1e10,
                   .update_bytes_per_s = 2e10,
                   .shared_cores = true,
                   .copy_bytes_per_s = 2e10};
  const Arguments here =
      kToy + Arguments{"--machine", folder_.write("host.json", to_json(machine))};
  const Json one = plan_json(here);
  const Json two = plan_json(here + Arguments{"--ranks", "2"});
  // Two ranks have the cores of one, and add groups besides.
  EXPECT_GT(two["predicted_seconds"], one["predicted_seconds"]);
  EXPECT_GE(two["predicted_seconds"], two["bound_seconds"]);
}

TEST_F(PlanRanks, AreSweptWithTheSameTokensOfEach) {
  const Outcome outcome = plan(kGpt + Arguments{"--sweep", "ranks", "--json"});
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  std::istringstream lines(outcome.out);
  std::vector<Json> rows;
  for (std::string line; std::getline(lines, line);) rows.push_back(parse_json(line));
  ASSERT_EQ(rows.size(), 3u);
  EXPECT_EQ(rows[0]["speed_up"], 1.0);
  for (size_t i = 0; i < rows.size(); ++i) {
    EXPECT_EQ(rows[i]["ranks"], 1 << i);
    EXPECT_EQ(rows[i]["tokens_per_step"], 4096 << i);
    if (i == 0) continue;
    EXPECT_EQ(rows[i]["groups"], 1 << i);
    EXPECT_GT(rows[i]["tokens_per_second"], rows[i - 1]["tokens_per_second"]);
  }
  Arguments shape = kGpt;
  *std::ranges::find(shape, "4") = "16";  // micro-batches
  const Json four = plan_json(shape + Arguments{"--ranks", "4", "--groups", "4"});
  EXPECT_EQ(rows[2]["predicted_seconds"], four["predicted_seconds"]);
  EXPECT_EQ(rows[2]["host_bytes"], four["ranks"]["host_bytes"]);
  const Outcome machines = plan(kGpt + Arguments{"--sweep", "ranks", "--nodes", "3", "--json"});
  std::istringstream more(machines.out);
  std::vector<std::pair<int, int>> numbers;
  for (std::string line; std::getline(more, line);) {
    const Json row = parse_json(line);
    numbers.emplace_back(row["ranks"], row["nodes"]);
  }
  const std::vector<std::pair<int, int>> expected = {{1, 1}, {2, 1}, {4, 1}, {8, 2}, {12, 3}};
  EXPECT_EQ(numbers, expected);
  EXPECT_FAILS(plan(kGpt + Arguments{"--sweep", "ranks", "--ranks", "2"}), 2,
               "leave out --ranks 2");
  EXPECT_FAILS(plan(kShape + Arguments{"--machine", "rtx4090", "--sweep", "ranks"}), 2,
               "'rtx4090' has one device; rtx4090-x4 and h100-x8 have several");
}

}  // namespace
}  // namespace ebb
