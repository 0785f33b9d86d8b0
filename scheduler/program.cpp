#include "scheduler/program.h"

#include <algorithm>

namespace ebb {
namespace {

constexpr uint32_t kNever = UINT32_MAX;

/// For every parameter chunk that gets a gradient, the moment after which it may be finished and
/// updated: the last that writes a gradient in it, or reads its weights later still.
std::vector<uint32_t> last_contributions(const Trace& trace, const Layout& layout) {
  std::vector<uint32_t> last(layout.num_chunks(), kNever);
  for (uint32_t m = 0; m < trace.moments.size(); ++m) {
    for (const ParameterUse& use : trace.uses_of(trace.moments[m])) {
      const ChunkRange range =
          layout.chunks(Space::Weights, layout.weight_elements(use.parameter, use.rows));
      for (uint32_t c = range.first; c < range.last; ++c) {
        if (use.gradient || last[c] != kNever) last[c] = m;
      }
    }
  }
  return last;
}

/// Gathers the chunks of one item, each once.
class UseCollector {
 public:
  UseCollector(const Layout& layout, Program& program)
      : layout_(layout),
        program_(program),
        seen_(program.num_dense(), 0),
        created_(program.num_dense(), false) {}

  void begin(ProgramItem& item) {
    ++stamp_;
    item.first_use = static_cast<uint32_t>(program_.uses.size());
  }
  void end(ProgramItem& item) {
    item.num_uses = static_cast<uint32_t>(program_.uses.size()) - item.first_use;
  }
  void read(Space space, ElementRange range) { add(space, range, false, false); }
  void write(Space space, ElementRange range) { add(space, range, true, false); }
  /// Reads what some earlier item wrote; chunks that nothing wrote are left out.
  void consume(Space space, ElementRange range) { add(space, range, true, true); }

 private:
  void add(Space space, ElementRange elements, bool writes, bool only_created) {
    const ChunkRange range = layout_.chunks(space, elements);
    for (uint32_t index = range.first; index < range.last; ++index) {
      const uint32_t dense = program_.dense({space, index});
      if (seen_[dense] == stamp_ || (only_created && !created_[dense])) continue;
      seen_[dense] = stamp_;
      Touch touch = Touch::Read;
      if (writes) touch = created_[dense] ? Touch::Update : Touch::Create;
      created_[dense] = created_[dense] || writes;
      program_.uses.push_back({dense, touch});
    }
  }

  const Layout& layout_;
  Program& program_;
  std::vector<uint32_t> seen_;
  std::vector<bool> created_;
  uint32_t stamp_ = 0;
};

void collect_moment(UseCollector& collector, const Trace& trace, const Layout& layout,
                    const Moment& moment) {
  for (const ParameterUse& use : trace.uses_of(moment)) {
    if (use.weight) {
      collector.read(Space::Weights, layout.weight_elements(use.parameter, use.rows));
    }
    if (use.gradient) {
      collector.write(Space::GradientSums, layout.sum_elements(use.parameter, use.use, use.rows));
    }
  }
}

void collect_finish(UseCollector& collector, const Layout& layout, uint32_t chunk) {
  const uint64_t first = chunk * layout.chunk_elements();
  const uint64_t count = layout.chunk_elements(chunk);
  collector.consume(Space::GradientSums, {first, count});
  for (const Segment& segment : layout.segments(chunk)) {
    const uint64_t inside = segment.first_element - layout.first_element(segment.parameter);
    for (uint32_t use = 1; use < layout.parameter(segment.parameter).num_uses; ++use) {
      collector.consume(
          Space::GradientSums,
          {layout.first_sum_element(segment.parameter, use) + inside, segment.num_elements});
    }
  }
  collector.write(Space::Gradients, {first, count});
}

void collect_update(UseCollector& collector, const Layout& layout, uint32_t chunk) {
  const ElementRange elements{chunk * layout.chunk_elements(), layout.chunk_elements(chunk)};
  collector.write(Space::Weights, elements);
  collector.read(Space::Gradients, elements);
}

/// Moments [first, last].
struct Period {
  uint32_t first, last;
};

/// Sorts periods and joins those without a moment between them.
void join(std::vector<Period>& periods) {
  std::ranges::sort(periods, {}, &Period::first);
  size_t num_joined = 0;
  for (const Period& p : periods) {
    if (num_joined > 0 && p.first <= periods[num_joined - 1].last + 1) {
      periods[num_joined - 1].last = std::max(periods[num_joined - 1].last, p.last);
    } else {
      periods[num_joined++] = p;
    }
  }
  periods.resize(num_joined);
}

struct ChunkPeriods {
  std::vector<Period> lives, busy;  // busy: alive and not at rest
};

std::vector<ChunkPeriods> periods_of_chunks(const Trace& trace, size_t chunk_bytes) {
  std::vector<ChunkPeriods> chunks(num_arena_chunks(trace, chunk_bytes));
  auto rest = trace.rests.begin();
  for (uint32_t s = 0; s < trace.activations.size(); ++s) {
    const ActivationSpan& span = trace.activations[s];
    const size_t first = span.offset / chunk_bytes;
    const size_t last = (span.offset + span.bytes - 1) / chunk_bytes;
    const auto is_busy = [&](uint32_t from, uint32_t to) {
      for (size_t c = first; c <= last; ++c) chunks[c].busy.push_back({from, to});
    };
    for (size_t c = first; c <= last; ++c) {
      chunks[c].lives.push_back({span.first_moment, span.last_moment});
    }
    uint32_t from = span.first_moment;
    for (; rest != trace.rests.end() && rest->span == s; ++rest) {
      is_busy(from, rest->last_before);
      from = rest->first_after;
    }
    is_busy(from, span.last_moment);
  }
  for (ChunkPeriods& chunk : chunks) {
    join(chunk.lives);
    join(chunk.busy);
  }
  return chunks;
}

/// Turns the periods of activations into events of arena chunks.
void add_activations(Program& program, const Trace& trace, size_t chunk_bytes,
                     const std::vector<uint32_t>& item_of_moment) {
  const std::vector<ChunkPeriods> chunks = periods_of_chunks(trace, chunk_bytes);
  std::vector<std::vector<uint32_t>> at[kNumArenaChunkEvents];
  for (auto& items : at) items.resize(program.items.size());
  const auto happens = [&](ArenaChunkEvent event, uint32_t moment, uint32_t chunk) {
    at[static_cast<int>(event)][item_of_moment[moment]].push_back(chunk);
  };
  for (uint32_t c = 0; c < chunks.size(); ++c) {
    const uint32_t dense = program.dense({Space::Activations, c});
    auto life = chunks[c].lives.begin();
    for (const Period& busy : chunks[c].busy) {
      while (life->last < busy.first) ++life;
      const bool begins = busy.first == life->first, ends = busy.last == life->last;
      happens(begins ? ArenaChunkEvent::Begin : ArenaChunkEvent::Wake, busy.first, dense);
      happens(ends ? ArenaChunkEvent::End : ArenaChunkEvent::Rest, busy.last, dense);
    }
  }
  for (int e = 0; e < kNumArenaChunkEvents; ++e) {
    for (size_t i = 0; i < program.items.size(); ++i) {
      program.items[i].first_event[e] = static_cast<uint32_t>(program.events[e].size());
      program.items[i].num_events[e] = static_cast<uint32_t>(at[e][i].size());
      program.events[e].insert(program.events[e].end(), at[e][i].begin(), at[e][i].end());
    }
  }
}

}  // namespace

ChunkId Program::chunk_id(uint32_t dense) const {
  int space = 0;
  while (dense >= first_dense[space + 1]) ++space;
  return {static_cast<Space>(space), dense - first_dense[space]};
}

uint32_t num_arena_chunks(const Trace& trace, size_t chunk_bytes) {
  return static_cast<uint32_t>((trace.arena_bytes + chunk_bytes - 1) / chunk_bytes);
}

Program make_program(const Trace& trace, const Layout& layout, bool with_gradients,
                     const DeviceUpdates& device_updates) {
  Program program;
  for (int s = 0; s < kNumSpaces; ++s) {
    const Space space = static_cast<Space>(s);
    const uint32_t count = space == Space::Activations
                               ? num_arena_chunks(trace, layout.chunk_bytes())
                               : layout.num_chunks(space);
    program.first_dense[s + 1] = program.first_dense[s] + count;
  }
  const std::vector<uint32_t> last = with_gradients
                                         ? last_contributions(trace, layout)
                                         : std::vector<uint32_t>(layout.num_chunks(), kNever);
  std::vector<std::vector<uint32_t>> finished_at(trace.moments.size());
  for (uint32_t c = 0; c < last.size(); ++c) {
    if (last[c] != kNever) finished_at[last[c]].push_back(c);
  }
  std::vector<bool> updates(layout.num_chunks(), false);
  for (uint32_t c : device_updates.chunks) updates[c] = true;
  UseCollector collector(layout, program);
  const auto add_update = [&](uint32_t c) {
    ProgramItem& update = program.items.emplace_back(ProgramItem{.updated_chunk = c});
    collector.begin(update);
    collect_update(collector, layout, c);
    collector.end(update);
  };
  std::vector<uint32_t> item_of_moment;
  for (uint32_t m = 0; m < trace.moments.size(); ++m) {
    item_of_moment.push_back(static_cast<uint32_t>(program.items.size()));
    ProgramItem& run = program.items.emplace_back(ProgramItem{.moment = m});
    collector.begin(run);
    collect_moment(collector, trace, layout, trace.moments[m]);
    collector.end(run);
    for (uint32_t c : finished_at[m]) {
      ProgramItem& finish = program.items.emplace_back(ProgramItem{.finished_chunk = c});
      collector.begin(finish);
      collect_finish(collector, layout, c);
      collector.end(finish);
      if (updates[c] && !device_updates.at_end) add_update(c);
    }
  }
  if (device_updates.at_end) {
    for (uint32_t c : device_updates.chunks) add_update(c);
  }
  add_activations(program, trace, layout.chunk_bytes(), item_of_moment);
  return program;
}

}  // namespace ebb
