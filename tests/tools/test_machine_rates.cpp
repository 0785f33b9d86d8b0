#include <gtest/gtest.h>

#include <fstream>
#include <limits>

#include "tests/tools/run_ebb.h"
#include "tools/machine_rates.h"

namespace ebb {
namespace {

const RatesKey kKey{.cpu = "AMD EPYC", .device = "host, 2 threads", .num_threads = 2};
const Machine kMachine{.flops_per_s = 4e11,
                       .narrow_flops_per_s = 3e11,
                       .attention_flops_per_s = 2e11,
                       .attention_backward_flops_per_s = 1.5e11,
                       .vector_flops_per_s = 1e11,
                       .kernel_s = 1e-5,
                       .device_bytes_per_s = 5e10,
                       .load_bytes_per_s = 2e10,
                       .store_bytes_per_s = 1e10,
                       .update_bytes_per_s = 6e10,
                       .shared_cores = true,
                       .copy_bytes_per_s = 3e10};

TEST(MachineRates, LeaveOutTheMemoryTrafficOfArithmetic) {
  EXPECT_DOUBLE_EQ(rate_of_arithmetic(12, 4, 0, 5), 12 / 4.0);   // a GPU
  EXPECT_DOUBLE_EQ(rate_of_arithmetic(12, 4, 5, 5), 12 / 3.0);   // 1 s of traffic
  EXPECT_DOUBLE_EQ(rate_of_arithmetic(12, 4, 50, 5), 12 / 2.0);  // the tensors were in caches
}

TEST(MachineRates, AreWrittenToAFileAndReadBack) {
  const auto back = rates_from_json(to_json(kKey, kMachine), kKey);
  ASSERT_TRUE(back);
  EXPECT_EQ(back->flops_per_s, kMachine.flops_per_s);
  EXPECT_EQ(back->attention_flops_per_s, kMachine.attention_flops_per_s);
  EXPECT_EQ(back->narrow_flops_per_s, kMachine.narrow_flops_per_s);
  EXPECT_EQ(back->attention_backward_flops_per_s, kMachine.attention_backward_flops_per_s);
  EXPECT_EQ(back->vector_flops_per_s, kMachine.vector_flops_per_s);
  EXPECT_EQ(back->kernel_s, kMachine.kernel_s);
  EXPECT_EQ(back->device_bytes_per_s, kMachine.device_bytes_per_s);
  EXPECT_EQ(back->load_bytes_per_s, kMachine.load_bytes_per_s);
  EXPECT_EQ(back->store_bytes_per_s, kMachine.store_bytes_per_s);
  EXPECT_EQ(back->update_bytes_per_s, kMachine.update_bytes_per_s);
  EXPECT_EQ(back->copy_bytes_per_s, kMachine.copy_bytes_per_s);
  EXPECT_EQ(back->shared_cores, kMachine.shared_cores);
}

TEST(MachineRates, OfAnotherMachineAreNotUsed) {
  const std::string text = to_json(kKey, kMachine);
  const auto other = [&](auto change) {
    RatesKey key = kKey;
    change(key);
    return rates_from_json(text, key).has_value();
  };
  EXPECT_FALSE(other([](RatesKey& k) { k.cpu = "another"; }));
  EXPECT_FALSE(other([](RatesKey& k) { k.device = "another"; }));
  EXPECT_FALSE(other([](RatesKey& k) { k.num_threads = 3; }));
  EXPECT_FALSE(other([](RatesKey& k) { k.arithmetic = Arithmetic::Bf16Dot; }));
  EXPECT_FALSE(other([](RatesKey& k) { k.weight_type = DType::F32; }));
  EXPECT_FALSE(other([](RatesKey& k) { k.gradient_type = DType::F32; }));
  EXPECT_TRUE(other([](RatesKey&) {}));
}

TEST(MachineRates, DamagedTextIsNotUsed) {
  const std::string text = to_json(kKey, kMachine);
  for (size_t length = 0; length + 2 < text.size(); length += 7) {
    EXPECT_FALSE(rates_from_json(text.substr(0, length), kKey)) << length;
  }
  for (const char* bad : {"[]", "{}", "null", "{\"of\": 3}"}) {
    EXPECT_FALSE(rates_from_json(bad, kKey)) << bad;
  }
  for (const double rate : {0.0, -1.0, std::numeric_limits<double>::infinity()}) {
    Machine machine = kMachine;
    machine.update_bytes_per_s = rate;
    EXPECT_FALSE(rates_from_json(to_json(kKey, machine), kKey)) << rate;
  }
}

TEST(MachineRates, AreMeasuredOnceAndCached) {
  const TemporaryFolder folder;
  const auto cache = folder.path() / "new" / "ebb";
  const DeviceOptions options{.profile = {.num_threads = 1}, .arithmetic = Arithmetic::Fp32};
  const MachineRates first = machine_rates(options, DType::F32, DType::F32, cache);
  EXPECT_GT(first.measured_s, 0);
  EXPECT_TRUE(first.machine.shared_cores);
  for (double rate : {first.machine.flops_per_s, first.machine.attention_flops_per_s,
                      first.machine.vector_flops_per_s, first.machine.device_bytes_per_s,
                      first.machine.load_bytes_per_s, first.machine.store_bytes_per_s,
                      first.machine.update_bytes_per_s}) {
    EXPECT_GT(rate, 1e6);
    EXPECT_LT(rate, 1e15);
  }
  const MachineRates second = machine_rates(options, DType::F32, DType::F32, cache);
  EXPECT_EQ(second.measured_s, 0);
  EXPECT_EQ(second.other_load, 0) << "a busy machine is reported once";
  EXPECT_EQ(second.file, first.file);
  EXPECT_EQ(second.machine.flops_per_s, first.machine.flops_per_s);
  EXPECT_SAYS(second.source(), "from ");
  const auto num_files = std::distance(std::filesystem::directory_iterator(cache), {});
  EXPECT_EQ(num_files, 1);  // no unfinished file is left

  // An emulated link has the requested rates and is not measured.
  DeviceOptions linked = options;
  linked.load_bytes_per_s = 3e9;
  linked.store_bytes_per_s = 2e9;
  const MachineRates third = machine_rates(linked, DType::F32, DType::F32, cache);
  EXPECT_EQ(third.measured_s, 0);
  EXPECT_EQ(third.machine.load_bytes_per_s, 3e9);
  EXPECT_EQ(third.machine.store_bytes_per_s, 2e9);

  std::ofstream(first.file) << "not mine";
  const MachineRates again = machine_rates(options, DType::F32, DType::F32, cache);
  EXPECT_GT(again.measured_s, 0);
  EXPECT_NE(content_of(again.file), "not mine");
  EXPECT_EQ(machine_rates(options, DType::F32, DType::F32, cache).measured_s, 0);
  EXPECT_GT(machine_rates(options, DType::F32, DType::F32, cache, Kept::Replace).measured_s, 0);
}

}  // namespace
}  // namespace ebb
