#include "scheduler/run/state.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "cpu_adam/state_hash.h"
#include "device/errors.h"
#include "device/normal_numbers.h"
#include "device/planes.h"
#include "device/random.h"
#include "system/thread_team.h"

namespace ebb {
namespace {

constexpr uint64_t kInitBlock = 4096;                 // elements that one task fills
constexpr uint64_t kFarElements = uint64_t{1} << 20;  // of another machine that are copied at once

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
  normal_numbers(first / 4, counter_hi, key, out);  // four numbers a counter
  for (float& value : out) value = init.constant + init.standard_deviation * value;
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

Planes State::home_planes(ChunkIndex chunk) const {
  Planes planes{.weight_dtype = layout_.weight_type(), .gradient_dtype = layout_.gradient_type()};
  for (size_t i = 0; i < state_planes(layout_.weight_type()).size(); ++i) {
    planes[i] = home_.plane(i, chunk);
  }
  return planes;
}

template <class Visit>
void State::for_each_run(uint64_t first, uint64_t count, PlaneSet asked, bool changed,
                         const Visit& visit) const {
  const uint64_t end = first + count;
  while (first < end) {
    const ChunkIndex chunk(first / layout_.chunk_elements());
    const uint64_t begin = chunk * layout_.chunk_elements();
    const uint64_t num = std::min(end, begin + layout_.chunk_elements()) - first;
    if (changed && !home_.is_mine(chunk)) {
      visit(Run{first, static_cast<int64_t>(num), {}, true});
      first += num;
      continue;
    }
    if (!home_.is_near(home_.owner(chunk))) {
      visit_far(chunk, first, num, asked, visit);
    } else if (device_state_.has(chunk)) {
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

/// Copies the planes from another machine, part by part.
template <class Visit>
void State::visit_far(ChunkIndex chunk, uint64_t first, uint64_t count, PlaneSet asked,
                      const Visit& visit) const {
  const std::span<const PlaneInfo> infos = state_planes(layout_.weight_type());
  const uint64_t begin = chunk * layout_.chunk_elements();
  std::array<std::vector<std::byte>, kMostPlanes> copies;
  for (uint64_t done = 0; done < count; done += kFarElements) {
    const uint64_t at = first + done, num = std::min(kFarElements, count - done);
    Planes planes{.weight_dtype = layout_.weight_type(), .gradient_dtype = layout_.gradient_type()};
    std::vector<RemotePart> parts;
    for (size_t i = 0; i < infos.size(); ++i) {
      if (!asked[i]) continue;
      copies[i].resize(infos[i].bytes(num));
      planes[i] = copies[i].data();
      const HomePlace from = home_.plane_place(i, chunk, at - begin);
      parts.push_back({from.rank, from.offset, copies[i]});
    }
    ranks_->read(parts);
    visit(Run{at, static_cast<int64_t>(num), planes});
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
    for_each_run(begin, layout_.num_elements(id), masters_, true, [&](const Run& run) {
      if (run.is_foreign) return;
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
  for_each_run(begin, masters.size(), masters_, false, [&](const Run& run) {
    read_masters(run.planes, masters.subspan(run.first - begin, static_cast<size_t>(run.count)));
  });
}

void State::write(ParameterId id, uint64_t first, std::span<const float> masters) {
  const uint64_t begin = first_element(id, first, masters.size());
  for_each_run(begin, masters.size(), masters_, true, [&](const Run& run) {
    if (run.is_foreign) return;
    write_masters(run.planes, masters.subspan(run.first - begin, static_cast<size_t>(run.count)));
  });
}

void State::read_weights(ParameterId id, uint64_t first, std::span<float> weights) const {
  const uint64_t begin = first_element(id, first, weights.size());
  for_each_run(begin, weights.size(), PlaneSet().set(kWeightPlane), false, [&](const Run& run) {
    with_weight_type(layout_.weight_type(), [&](auto zero) {
      std::copy_n(reinterpret_cast<const decltype(zero)*>(run.planes[kWeightPlane]), run.count,
                  weights.begin() + static_cast<int64_t>(run.first - begin));
    });
  });
}

void State::visit_plane(ParameterId id, size_t plane, ElementRange elements, bool changed,
                        const VisitPlane& visit) const {
  const PlaneInfo& info = state_planes(layout_.weight_type())[plane];
  for_each_run(first_element(id, elements.first, elements.count), elements.count,
               PlaneSet().set(plane), changed, [&](const Run& run) {
                 const size_t bytes = info.bytes(static_cast<uint64_t>(run.count));
                 if (!run.is_foreign) return visit({run.planes[plane], bytes});
                 std::vector<std::byte> unused(bytes);
                 visit(unused);
               });
}

uint64_t State::hash() const {
  const std::span<const PlaneInfo> infos = state_planes(layout_.weight_type());
  StateHash hash;
  for (const ParameterId id : layout_.call_order()) {
    for_each_run(layout_.first_element(id), layout_.num_elements(id), masters_, false,
                 [&](const Run& run) { hash.add_masters(run.planes, run.count); });
    for (size_t i = 0; i < infos.size(); ++i) {
      if (infos[i].holds_master) continue;
      visit_plane(id, i, {0, layout_.num_elements(id)}, false,
                  [&](std::span<std::byte> bytes) { hash.add_bytes(bytes); });
    }
  }
  return hash.value();
}

}  // namespace ebb
