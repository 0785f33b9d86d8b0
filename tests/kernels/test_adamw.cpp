// The AdamW kernel of the device gives the same bits as AdamW on the CPU, for every type.
#include <cstring>

#include "cpu_adam/adamw.h"
#include "device/random.h"
#include "system/thread_team.h"
#include "tests/kernels/reference.h"

namespace ebb::test {
namespace {

struct Types {
  DType weight, gradient;
};

/// A training state in vectors.
struct AdamWState {
  std::vector<std::byte> weight, gradient;
  std::vector<int16_t> low;
  std::vector<float> master, momentum, variance;
  bool operator==(const AdamWState&) const = default;
};

class DeviceAdamW : public testing::TestWithParam<Types> {
 protected:
  static constexpr int64_t kCount = 1'400'001;  // more than a GPU updates at once, and a tail

  /// Random finite values, some of them denormal.
  AdamWState random_state() const {
    AdamWState s;
    const auto n = static_cast<size_t>(kCount);
    s.weight.resize(n * size_of(GetParam().weight));
    s.gradient.resize(n * size_of(GetParam().gradient));
    s.low.resize(n);
    s.master.resize(n);
    s.momentum.resize(n);
    s.variance.resize(n);
    for (size_t i = 0; i < n; ++i) {
      const auto words = philox4x32(i, 0, 11);
      const auto pair = normal_pair(words[0], words[1]), other = normal_pair(words[2], words[3]);
      s.low[i] = static_cast<int16_t>(words[0]);
      s.momentum[i] = 0.01f * pair.first;
      s.variance[i] = i % 97 == 0 ? 1e-40f : 1e-4f * pair.first * pair.first;  // some denormal
      s.master[i] = 0.02f * pair.second;
      put(s.weight, GetParam().weight, i, s.master[i]);
      put(s.gradient, GetParam().gradient, i, 0.1f * other.first);
    }
    return s;
  }
  static void put(std::vector<std::byte>& to, DType type, size_t i, float x) {
    if (type == DType::F32) {
      std::memcpy(&to[4 * i], &x, 4);
    } else if (type == DType::BF16) {
      const BF16 value(x);
      std::memcpy(&to[2 * i], &value, 2);
    } else {
      const F16 value(x);
      std::memcpy(&to[2 * i], &value, 2);
    }
  }
  /// The second plane: the low half or the master.
  static std::byte* remainder(std::byte* low, std::byte* master) {
    return GetParam().weight == DType::BF16 ? low : master;
  }
  Planes planes(std::byte* weight, std::byte* remainder, std::byte* momentum, std::byte* variance,
                const std::byte* gradient) const {
    Planes planes{.gradient = gradient,
                  .weight_dtype = GetParam().weight,
                  .gradient_dtype = GetParam().gradient};
    size_t next = 0;
    planes[next++] = weight;
    if (GetParam().weight != DType::F32) planes[next++] = remainder;
    planes[next++] = momentum;
    planes[next++] = variance;
    return planes;
  }
  Planes planes(AdamWState& s) const {
    const auto bytes = [](auto& plane) { return reinterpret_cast<std::byte*>(plane.data()); };
    return planes(s.weight.data(), remainder(bytes(s.low), bytes(s.master)), bytes(s.momentum),
                  bytes(s.variance), s.gradient.data());
  }
  void update_on_device(AdamWState& s, const AdamWCoefficients& coefficients) {
    update_on_device(s, {{.count = kCount}}, {coefficients});
  }
  void update_on_device(AdamWState& s, const std::vector<UpdateRange>& ranges,
                        const std::vector<AdamWCoefficients>& coefficients) {
    const DType weight = GetParam().weight, gradient = GetParam().gradient;
    const Array w = array(weight, s.weight), g = array(gradient, s.gradient);
    const Array low = array(DType::I16, s.low);
    const Array master = array(DType::F32, s.master);
    const Array m = array(DType::F32, s.momentum), v = array(DType::F32, s.variance);
    const std::span from(coefficients);
    Guarded pinned(from.size_bytes());
    std::memcpy(pinned.data(), from.data(), from.size_bytes());
    Harness h(2);
    h.kernels->submit(
        h.stream,
        AdamWUpdate{planes(w.tensor().data, remainder(low.tensor().data, master.tensor().data),
                           m.tensor().data, v.tensor().data, g.tensor().data),
                    ranges,
                    {reinterpret_cast<const AdamWCoefficients*>(pinned.data()), from.size()}});
    read_back(s.weight, w);
    read_back(s.low, low);
    read_back(s.master, master);
    read_back(s.momentum, m);
    read_back(s.variance, v);
  }

  /// Copies the bytes to memory that the device reads.
  template <class T>
  static Array array(DType dtype, const std::vector<T>& from) {
    Array result(dtype, {kCount});
    EXPECT_EQ(result.tensor().bytes(), from.size() * sizeof(T));
    std::memcpy(result.tensor().data, from.data(), result.tensor().bytes());
    return result;
  }
  template <class T>
  static void read_back(std::vector<T>& to, const Array& from) {
    std::memcpy(to.data(), from.tensor().data, from.tensor().bytes());
  }

  const AdamWStep step_{.learning_rate = 3e-3, .t = 7, .gradient_scale = 0.37f};
};

TEST_P(DeviceAdamW, HasTheBitsOfTheCpu) {
  AdamWState cpu = random_state(), device_state = cpu;
  const AdamWState before = cpu;
  ThreadTeam team(2);
  for (int i = 0; i < 3; ++i) {
    adamw_update(team, planes(cpu), kCount, step_, 1, 0.5);
    update_on_device(device_state, adamw_coefficients(step_, 1, 0.5));
  }
  EXPECT_TRUE(device_state == cpu);
  EXPECT_FALSE(device_state.momentum == before.momentum);
  AdamWState other_state = before;
  AdamWStep other = step_;
  other.adam.beta2 += 1e-3;
  for (int i = 0; i < 3; ++i) update_on_device(other_state, adamw_coefficients(other, 1, 0.5));
  EXPECT_FALSE(other_state == cpu);
}

/// Ranges of 1 to 30,000 elements at any alignment, with gaps; there are more of them than one
/// launch takes.
TEST_P(DeviceAdamW, UpdatesRangesWithTheirOwnCoefficients) {
  std::vector<AdamWRange> ranges;
  std::vector<UpdateRange> device_ranges;
  for (int64_t first = 3; first < kCount; first = ranges.back().first + ranges.back().count) {
    const auto i = static_cast<int64_t>(ranges.size());
    const uint32_t which = i % 3 == 1 ? 1 : 0;
    const int64_t gap = i % 5 == 2 ? i : 0, length = i % 17 == 16 ? 30'000 : 1 + i * i;
    first = std::min(first + gap, kCount);
    ranges.push_back(
        {first, std::min(length, kCount - first), which == 0 ? 1.0 : 0.0, which == 0 ? 0.5 : 2.0});
    device_ranges.push_back({first, ranges.back().count, which});
  }
  ASSERT_GT(ranges.size(), 64U);
  AdamWState cpu = random_state(), device_state = cpu;
  ThreadTeam team(2);
  adamw_update(team, planes(cpu), kCount, ranges, step_);
  update_on_device(device_state, device_ranges,
                   {adamw_coefficients(step_, 1, 0.5), adamw_coefficients(step_, 0, 2)});
  EXPECT_TRUE(device_state == cpu);
}

TEST_P(DeviceAdamW, SkipChangesNothing) {
  AdamWState device_state = random_state();
  const AdamWState before = device_state;
  AdamWCoefficients coefficients = adamw_coefficients(step_, 1, 1);
  coefficients.skip = 1;
  update_on_device(device_state, coefficients);
  EXPECT_TRUE(device_state == before);
}

INSTANTIATE_TEST_SUITE_P(
    Types, DeviceAdamW,
    testing::Values(Types{DType::F32, DType::F32}, Types{DType::BF16, DType::BF16},
                    Types{DType::BF16, DType::F32}, Types{DType::BF16, DType::F16},
                    Types{DType::F16, DType::F16}, Types{DType::F16, DType::F32}),
    [](const auto& info) {
      return std::string(name_of(info.param.weight)) + "_" +
             std::string(name_of(info.param.gradient));
    });

}  // namespace
}  // namespace ebb::test
