#include "scheduler/run/state.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "cpu_adam/state_hash.h"
#include "device/errors.h"
#include "device/planes.h"
#include "device/random.h"
#include "system/thread_team.h"

namespace ebb {
namespace {

constexpr uint64_t kInitBlock = 4096;  // elements that one task fills

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

void initialise(const Parameter& parameter, uint64_t seed, uint64_t first, uint64_t count,
                ThreadTeam& team, const TakeInitial& take) {
  const uint64_t end = first + count;
  team.for_each(static_cast<int64_t>((count + kInitBlock - 1) / kInitBlock), [&](int64_t block) {
    std::array<float, kInitBlock> values;
    const uint64_t at = first + static_cast<uint64_t>(block) * kInitBlock;
    const std::span<float> part(values.data(), std::min(kInitBlock, end - at));
    initial_values(parameter, seed, at, part);
    take(at, part);
  });
}

ParameterId parameter_named(const Layout& layout, std::string_view name) {
  for (ParameterId id = 0; id < layout.num_parameters(); ++id) {
    if (layout.parameter(id).name == name) return id;
  }
  throw ConfigError(fmt::format("the model has no parameter '{}'", name));
}

namespace {

/// The kind of the i-th plane of state_planes(): 0 is the weight, 1 the remainder, 2 the momentum
/// and 3 the variance.
size_t kind_of(DType weight_type, size_t i) {
  const bool has_remainder = weight_type != DType::F32;
  return i == 0 || has_remainder ? i : i + 1;
}

StatePlanes only(size_t kind) {
  return {
      .weight = kind == 0, .remainder = kind == 1, .momentum = kind == 2, .variance = kind == 3};
}

std::byte* plane_of(const Planes& planes, size_t kind) {
  void* const remainder = planes.low != nullptr ? static_cast<void*>(planes.low) : planes.master;
  void* const all[] = {planes.weight, remainder, planes.momentum, planes.variance};
  return static_cast<std::byte*>(all[kind]);
}

constexpr StatePlanes kMasters = {.weight = true, .remainder = true};

}  // namespace

Planes State::home_planes(uint32_t chunk) const {
  const DType type = layout_.weight_type();
  int next = 0;
  Planes planes;
  planes.weight = home_.plane(next++, chunk);
  if (type == DType::BF16) planes.low = reinterpret_cast<int16_t*>(home_.plane(next++, chunk));
  if (type == DType::F16) planes.master = reinterpret_cast<float*>(home_.plane(next++, chunk));
  planes.momentum = reinterpret_cast<float*>(home_.plane(next++, chunk));
  planes.variance = reinterpret_cast<float*>(home_.plane(next++, chunk));
  planes.weight_dtype = type;
  planes.gradient_dtype = layout_.gradient_type();
  return planes;
}

template <class Visit>
void State::for_each_run(uint64_t first, uint64_t count, StatePlanes asked, bool changed,
                         const Visit& visit) const {
  const uint64_t end = first + count;
  while (first < end) {
    const auto chunk = static_cast<uint32_t>(first / layout_.chunk_elements());
    const uint64_t begin = chunk * layout_.chunk_elements();
    const uint64_t num = std::min(end, begin + layout_.chunk_elements()) - first;
    if (device_state_.has(chunk)) {
      device_state_.visit_copies(chunk, first - begin, num, asked, changed,
                                 [&](uint64_t at, uint64_t n, const Planes& copies) {
                                   visit(Run{begin + at, static_cast<int64_t>(n), copies});
                                 });
    } else {
      visit(Run{first, static_cast<int64_t>(num),
                home_planes(chunk).from(static_cast<int64_t>(first - begin))});
    }
    first += num;
  }
}

uint64_t State::first_element(ParameterId id, uint64_t first, size_t count) const {
  EBB_CHECK(id < layout_.num_parameters(), "there is no such parameter");
  const uint64_t elements = layout_.num_elements(id);
  EBB_CHECK(first <= elements && count <= elements - first,
            "the parameter has another number of elements");
  return layout_.first_element(id) + first;
}

void State::initialise(const Parameters& parameters, uint64_t seed, ThreadTeam& team) {
  for (ParameterId id = 0; id < parameters.size(); ++id) {
    const uint64_t begin = layout_.first_element(id);
    for_each_run(begin, layout_.num_elements(id), kMasters, true, [&](const Run& run) {
      const uint64_t first = run.first - begin;
      ebb::initialise(parameters[id], seed, first, static_cast<uint64_t>(run.count), team,
                      [&](uint64_t at, std::span<const float> values) {
                        write_masters(run.planes.from(static_cast<int64_t>(at - first)), values);
                      });
    });
  }
}

void State::read(ParameterId id, uint64_t first, std::span<float> masters) const {
  const uint64_t begin = first_element(id, first, masters.size());
  for_each_run(begin, masters.size(), kMasters, false, [&](const Run& run) {
    read_masters(run.planes, masters.subspan(run.first - begin, static_cast<size_t>(run.count)));
  });
}

void State::write(ParameterId id, uint64_t first, std::span<const float> masters) {
  const uint64_t begin = first_element(id, first, masters.size());
  for_each_run(begin, masters.size(), kMasters, true, [&](const Run& run) {
    write_masters(run.planes, masters.subspan(run.first - begin, static_cast<size_t>(run.count)));
  });
}

void State::read_weights(ParameterId id, uint64_t first, std::span<float> weights) const {
  const uint64_t begin = first_element(id, first, weights.size());
  for_each_run(begin, weights.size(), {.weight = true}, false, [&](const Run& run) {
    with_weight_type(layout_.weight_type(), [&](auto zero) {
      std::copy_n(reinterpret_cast<const decltype(zero)*>(run.planes.weight), run.count,
                  weights.begin() + static_cast<int64_t>(run.first - begin));
    });
  });
}

void State::visit_plane(ParameterId id, size_t plane, bool changed, const VisitPlane& visit) const {
  const DType type = layout_.weight_type();
  const size_t kind = kind_of(type, plane);
  const size_t bytes_per_element = state_planes(type)[plane].bits_per_element / 8;
  for_each_run(
      layout_.first_element(id), layout_.num_elements(id), only(kind), changed,
      [&](const Run& run) {
        visit({plane_of(run.planes, kind), static_cast<size_t>(run.count) * bytes_per_element});
      });
}

uint64_t State::hash() const {
  StateHash hash;
  for (const ParameterId id : layout_.call_order()) {
    const auto for_each = [&](StatePlanes asked, const auto& add) {
      for_each_run(layout_.first_element(id), layout_.num_elements(id), asked, false, add);
    };
    for_each(kMasters, [&](const Run& run) { hash.add_masters(run.planes, run.count); });
    for_each({.momentum = true},
             [&](const Run& run) { hash.add_values(run.planes.momentum, run.count); });
    for_each({.variance = true},
             [&](const Run& run) { hash.add_values(run.planes.variance, run.count); });
  }
  return hash.value();
}

}  // namespace ebb
