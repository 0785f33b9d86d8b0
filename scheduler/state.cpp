#include "scheduler/state.h"

#include <fmt/format.h>

#include <array>

#include "cpu_adam/state_hash.h"
#include "device/errors.h"
#include "device/random.h"

namespace ebb {
namespace {

constexpr int64_t kInitBlock = 4096;  // elements a task fills

uint64_t name_hash(std::string_view name) {  // FNV-1a
  uint64_t hash = 14695981039346656037ull;
  for (const char c : name) hash = (hash ^ static_cast<unsigned char>(c)) * 1099511628211ull;
  return hash;
}

}  // namespace

void initial_values(const Parameter& parameter, uint64_t seed, uint64_t first,
                    std::span<float> out) {
  const Init& init = parameter.init;
  const uint64_t key = random_key(seed, RandomUse::Weights);
  const uint64_t counter_hi = name_hash(parameter.name);
  if (init.standard_deviation == 0) {
    std::fill(out.begin(), out.end(), init.constant);
    return;
  }
  for (size_t i = 0; i < out.size(); i += 4) {  // four numbers a counter
    const auto words = philox4x32((first + i) / 4, counter_hi, key);
    const auto a = normal_pair(words[0], words[1]);
    const auto b = normal_pair(words[2], words[3]);
    const std::array<float, 4> values = {a.first, a.second, b.first, b.second};
    for (size_t k = 0; k < 4 && i + k < out.size(); ++k) {
      out[i + k] = init.constant + init.standard_deviation * values[k];
    }
  }
}

std::vector<PlaneSpec> plane_specs(DType weight_type) {
  std::vector<PlaneSpec> specs;
  for (const PlaneInfo& plane : home_planes(weight_type)) {
    specs.push_back({plane.name, plane.bits_per_element / 8});
  }
  return specs;
}

Planes State::planes(uint64_t e) const {
  const DType type = layout_.weight_type();
  int next = 0;
  Planes planes;
  planes.weight = home_.plane(next++, e);
  if (type == DType::BF16) planes.low = reinterpret_cast<int16_t*>(home_.plane(next++, e));
  if (type == DType::F16) planes.master = reinterpret_cast<float*>(home_.plane(next++, e));
  planes.momentum = reinterpret_cast<float*>(home_.plane(next++, e));
  planes.variance = reinterpret_cast<float*>(home_.plane(next++, e));
  planes.weight_dtype = type;
  planes.gradient_dtype = layout_.gradient_type();
  return planes;
}

void initialise(const Parameters& parameters, uint64_t seed, ThreadTeam& team,
                const TakeInitial& take) {
  for (ParameterId id = 0; id < parameters.size(); ++id) {
    const int64_t count = parameters[id].shape.num_elements();
    team.for_each((count + kInitBlock - 1) / kInitBlock, [&](int64_t block) {
      std::array<float, kInitBlock> values;
      const int64_t first = block * kInitBlock;
      const std::span<float> part(values.data(),
                                  static_cast<size_t>(std::min(kInitBlock, count - first)));
      initial_values(parameters[id], seed, static_cast<uint64_t>(first), part);
      take(id, static_cast<uint64_t>(first), part);
    });
  }
}

ParameterId parameter_named(const Layout& layout, std::string_view name) {
  for (ParameterId id = 0; id < layout.num_parameters(); ++id) {
    if (layout.parameter(id).name == name) return id;
  }
  throw ConfigError(fmt::format("the model has no parameter '{}'", name));
}

void State::initialise(const Parameters& parameters, uint64_t seed, ThreadTeam& team) {
  ebb::initialise(parameters, seed, team,
                  [this](ParameterId id, uint64_t first, std::span<const float> values) {
                    write_masters(planes(layout_.first_element(id) + first), values);
                  });
}

Planes State::planes_of(ParameterId id, uint64_t first, size_t count) const {
  EBB_CHECK(id < layout_.num_parameters(), "there is no such parameter");
  const uint64_t elements = layout_.num_elements(id);
  EBB_CHECK(first <= elements && count <= elements - first,
            "a parameter has another number of elements");
  return planes(layout_.first_element(id) + first);
}

void State::read(ParameterId id, uint64_t first, std::span<float> masters) const {
  read_masters(planes_of(id, first, masters.size()), masters);
}

void State::write(ParameterId id, uint64_t first, std::span<const float> masters) {
  write_masters(planes_of(id, first, masters.size()), masters);
}

std::vector<std::span<std::byte>> State::plane_bytes(ParameterId id) const {
  std::vector<std::span<std::byte>> planes;
  for (const PlaneSpec& plane : plane_specs(layout_.weight_type())) {
    const int index = static_cast<int>(planes.size());
    planes.emplace_back(home_.plane(index, layout_.first_element(id)),
                        layout_.num_elements(id) * plane.bytes_per_element);
  }
  return planes;
}

uint64_t State::hash() const {
  StateHash hash;
  for (ParameterId id : layout_.call_order()) {
    hash.add_parameter(planes(layout_.first_element(id)),
                       static_cast<int64_t>(layout_.num_elements(id)));
  }
  return hash.value();
}

}  // namespace ebb
