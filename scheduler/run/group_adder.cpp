#include "scheduler/run/group_adder.h"

#include <algorithm>
#include <cstring>

#include "scheduler/search/memory_sizes.h"

namespace ebb {
GroupAdder::GroupAdder(const Layout& layout, const Home& home, const StoredSums& sums,
                       std::vector<bool> trained, const Division& division, Ranks* ranks)
    : layout_(layout),
      home_(home),
      sums_(sums),
      trained_(std::move(trained)),
      ranks_(ranks),
      far_portion_bytes_(kFarPortionElements * sums.sum_bytes()) {
  uint32_t most_uses = 1;
  for (ParameterId id = 0; id < layout.num_parameters(); ++id) {
    most_uses = std::max(most_uses, layout.parameter(id).num_uses);
  }
  addresses_.resize(most_uses * sums_.groups().size());
  uses_.resize(most_uses);
  far_slots_.resize(num_far_portions(layout, division));
  far_sums_.resize(far_slots_.size() * far_portion_bytes_);
  parts_.reserve(far_slots_.size());
}

/// Calls add(i, use, group) for the i-th sums of the part on another machine.
template <class Add>
void GroupAdder::for_each_far(const Segment& part, const Add& add) const {
  size_t i = 0;
  for (uint32_t use = 0; use < layout_.parameter(part.parameter).num_uses; ++use) {
    for (const StoredSums::Group& group : sums_.groups()) {
      if (!group.is_near) add(i++, use, group);
    }
  }
}

/// REQUIRES: the part is in one slot in each use.
void GroupAdder::read_far_slots(const Segment& part) {
  parts_.clear();
  for_each_far(part, [&](size_t i, uint32_t use, const StoredSums::Group& group) {
    const HomePlace from =
        home_.slot_number_place(group.rank, sums_.place(group, part, use).sum_chunk);
    parts_.push_back(
        {from.rank, from.offset, std::as_writable_bytes(std::span(&far_slots_[i], 1))});
  });
  ranks_->read(parts_);
}

void GroupAdder::read_far_sums(const Segment& portion) {
  parts_.clear();
  for_each_far(portion, [&](size_t i, uint32_t use, const StoredSums::Group& group) {
    const HomePlace slot = home_.sum_slot_place(group.rank, BufferIndex(far_slots_[i]));
    const uint64_t inside = sums_.place(group, portion, use).element * sums_.sum_bytes();
    const std::span into(&far_sums_[i * far_portion_bytes_],
                         portion.num_elements * sums_.sum_bytes());
    parts_.push_back({slot.rank, slot.offset + inside, into});
  });
  ranks_->read(parts_);
}

void GroupAdder::add_portion(ThreadTeam& team, const Segment& portion, std::byte* gradient) {
  const uint32_t num_uses = layout_.parameter(portion.parameter).num_uses;
  auto next = addresses_.begin();
  size_t far = 0;
  for (uint32_t use = 0; use < num_uses; ++use) {
    const auto first = next;
    for (const StoredSums::Group& group : sums_.groups()) {
      *next++ =
          group.is_near ? sums_.at(group, portion, use) : &far_sums_[far++ * far_portion_bytes_];
    }
    uses_[use] = {first, next};
  }
  round_sums_in_order(team, std::span(uses_).first(num_uses), sums_.type(),
                      static_cast<int64_t>(portion.num_elements), gradient,
                      layout_.gradient_type());
}

void GroupAdder::add_part(ThreadTeam& team, const Segment& part, std::byte* gradient) {
  if (far_slots_.empty()) return add_portion(team, part, gradient);
  read_far_slots(part);
  const size_t size = size_of(layout_.gradient_type());
  for (uint64_t done = 0; done < part.num_elements; done += kFarPortionElements) {
    const Segment portion{part.parameter, part.first_element + done,
                          std::min(kFarPortionElements, part.num_elements - done)};
    read_far_sums(portion);
    add_portion(team, portion, gradient + done * size);
  }
}

/// Calls visit(part) for the trained elements of the chunk, cut so that each part is in one slot in
/// each use.
template <class Visit>
void GroupAdder::for_each_part(ChunkIndex chunk, const Visit& visit) const {
  for (const Segment& segment : layout_.segments(chunk)) {
    if (trained_[segment.parameter]) sums_.for_each_in_one_slot(segment, visit);
  }
}

/// Calls make(part, gradient of the part) for each part, and makes zeros between them and the
/// partial norms.
template <class Make>
void GroupAdder::make_gradient(ThreadTeam& team, ChunkIndex chunk, std::byte* gradient,
                               std::span<double> partials, const Make& make) {
  const uint64_t begin = chunk * layout_.chunk_elements();
  const size_t size = size_of(layout_.gradient_type());
  const uint64_t num_elements = layout_.chunk_elements(chunk);
  uint64_t at = begin;
  const auto clear_until = [&](uint64_t end) {
    std::memset(gradient + (at - begin) * size, 0, (end - at) * size);
    at = end;
  };
  for_each_part(chunk, [&](const Segment& part) {
    clear_until(part.first_element);
    make(part, gradient + (at - begin) * size);
    at += part.num_elements;
  });
  clear_until(begin + num_elements);
  partial_norms(team, gradient, layout_.gradient_type(), static_cast<int64_t>(num_elements),
                partials);
}

void GroupAdder::add(ThreadTeam& team, ChunkIndex chunk, std::byte* gradient,
                     std::span<double> partials) {
  make_gradient(team, chunk, gradient, partials,
                [&](const Segment& part, std::byte* to) { add_part(team, part, to); });
}

void GroupAdder::add_to(ThreadTeam& team, ChunkIndex chunk, float* running, bool has_before) {
  for_each_part(chunk, [&](const Segment& part) {
    float* sum = running + part.first_element - chunk * layout_.chunk_elements();
    for (uint32_t use = 0; use < layout_.parameter(part.parameter).num_uses; ++use) {
      auto end = addresses_.begin();
      for (const StoredSums::Group& group : sums_.groups()) {
        if (group.is_near) *end++ = sums_.at(group, part, use);
      }
      add_in_order(team, has_before ? sum : nullptr, {addresses_.begin(), end}, sums_.type(),
                   static_cast<int64_t>(part.num_elements), sum);
      sum += layout_.chunk_elements(chunk);
    }
  });
}

void GroupAdder::round(ThreadTeam& team, ChunkIndex chunk, const float* running,
                       std::byte* gradient, std::span<double> partials) {
  make_gradient(team, chunk, gradient, partials, [&](const Segment& part, std::byte* to) {
    const float* sum = running + part.first_element - chunk * layout_.chunk_elements();
    const uint32_t num_uses = layout_.parameter(part.parameter).num_uses;
    for (uint32_t use = 0; use < num_uses; ++use) {
      addresses_[use] = reinterpret_cast<const std::byte*>(sum);
      uses_[use] = {&addresses_[use], 1};
      sum += layout_.chunk_elements(chunk);
    }
    round_sums_in_order(team, std::span(uses_).first(num_uses), DType::F32,
                        static_cast<int64_t>(part.num_elements), to, layout_.gradient_type());
  });
}

}  // namespace ebb
