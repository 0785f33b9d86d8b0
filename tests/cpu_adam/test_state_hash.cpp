#include <gtest/gtest.h>
#include <xxhash.h>

#include <vector>

#include "cpu_adam/state_hash.h"
#include "device/errors.h"
#include "system/thread_team.h"
#include "tests/cpu_adam/state.h"

namespace ebb::test::tests_of_state_hash {
namespace {

constexpr int64_t kCount = 5003;  // not a multiple of the 2048 masters that are joined at once

State trained(int64_t n, DType weight) {
  State state(n, {weight, DType::BF16});
  state.set_weights(static_cast<uint64_t>(n));
  state.set_gradients(2);
  ThreadTeam team(1);
  adamw_update(team, state.planes(), n, {.learning_rate = 1e-3}, 1, 1);
  return state;
}

uint64_t hash_of(State& state) {
  StateHash hash;
  hash.add_parameter(state.planes(), state.n());
  return hash.value();
}

class StateHashTypes : public testing::TestWithParam<DType> {};
INSTANTIATE_TEST_SUITE_P(Types, StateHashTypes,
                         testing::Values(DType::F32, DType::BF16, DType::F16));

TEST_P(StateHashTypes, IsXxh64OverMastersMomentaVariances) {
  State first = trained(kCount, GetParam()), second = trained(7, GetParam());
  std::vector<float> all;
  for (State* state : {&first, &second}) {
    for (const auto& plane : {state->masters(), state->momenta(), state->variances()}) {
      all.insert(all.end(), plane.begin(), plane.end());
    }
  }
  StateHash hash;
  hash.add_parameter(first.planes(), first.n());
  hash.add_parameter(second.planes(), second.n());
  EXPECT_EQ(hash.value(), XXH64(all.data(), all.size() * sizeof(float), 0));

  StateHash swapped;
  swapped.add_parameter(second.planes(), second.n());
  swapped.add_parameter(first.planes(), first.n());
  EXPECT_NE(swapped.value(), hash.value());
}

TEST_P(StateHashTypes, DoesNotDependOnTheSplitIntoCalls) {
  State state = trained(kCount, GetParam());
  for (int64_t cut : {0, 1, 2047, 2048, 2049, 5002, 5003}) {
    const Planes front = state.planes(), back = front.from(cut);
    StateHash hash;
    hash.add_masters(front, cut);
    hash.add_masters(back, kCount - cut);
    const auto add = [&hash](const float* values, int64_t count) {
      hash.add_bytes(std::as_bytes(std::span(values, static_cast<size_t>(count))));
    };
    add(named(front).momentum, cut);
    add(named(back).momentum, kCount - cut);
    add(named(front).variance, cut);
    add(named(back).variance, kCount - cut);
    EXPECT_EQ(hash.value(), hash_of(state)) << "cut at " << cut;
  }
}

TEST_P(StateHashTypes, ChangesWithEachBitOfEachPlane) {
  State state = trained(100, GetParam());
  const uint64_t before = hash_of(state);
  const NamedPlanes planes = named(state.planes());
  const auto flips = [&](void* plane, size_t bytes) {
    auto* const data = static_cast<unsigned char*>(plane);
    for (size_t bit = 0; bit < 8 * bytes; ++bit) {
      data[bit / 8] ^= static_cast<unsigned char>(1u << (bit % 8));
      EXPECT_NE(hash_of(state), before) << "bit " << bit;
      data[bit / 8] ^= static_cast<unsigned char>(1u << (bit % 8));
    }
  };
  if (!planes.master) flips(planes.weight + 99 * size_of(GetParam()), size_of(GetParam()));
  if (planes.master) flips(planes.master + 99, sizeof(float));
  if (planes.low) flips(planes.low + 50, sizeof(int16_t));
  flips(planes.momentum + 99, sizeof(float));
  flips(planes.variance, sizeof(float));
  EXPECT_EQ(hash_of(state), before);
}

TEST(StateHash, IsTheSameForAllWeightTypes) {
  State split = trained(kCount, DType::BF16), whole = trained(kCount, DType::F32);
  State half = trained(kCount, DType::F16);
  EXPECT_EQ(hash_of(split), hash_of(whole));
  EXPECT_EQ(hash_of(half), hash_of(whole));
}

TEST(StateHash, PrintsSixteenDigitsAndCanBeReset) {
  StateHash hash;
  EXPECT_EQ(hash.hex(), "ef46db3751d8e999");  // XXH64 of no bytes
  State state = trained(3, DType::F32);
  hash.add_parameter(state.planes(), 3);
  EXPECT_EQ(hash.value(), hash_of(state));
  hash.reset();
  EXPECT_EQ(hash.value(), 0xef46db3751d8e999u);
}

TEST(StateHash, RejectsMissingPlanes) {
  State state = trained(3, DType::BF16);
  Planes planes = state.planes();
  planes[2] = nullptr;  // the momentum
  StateHash hash;
  EXPECT_THROW(hash.add_parameter(planes, 3), LogicError);
}

}  // namespace
}  // namespace ebb::test::tests_of_state_hash
