#include "scheduler/plan/chunk_trace.h"

#include <algorithm>
#include <numeric>
#include <utility>

namespace ebb {
namespace {

/// For every parameter chunk that gets a gradient, the call after which it may be rounded and
/// updated: the last call that writes its gradient or reads its weights.
std::vector<CallIndex> last_contributions(const Trace& trace, const Layout& layout) {
  std::vector<CallIndex> last(layout.num_chunks(), kNone);
  for (CallIndex m{0}; m < trace.calls.size(); ++m) {
    for (const ParameterUse& use : trace.uses_of(trace.calls[m])) {
      const ChunkRange range =
          layout.chunks(Space::Weights, layout.weight_elements(use.parameter, use.rows));
      for (uint32_t c = range.first; c < range.last; ++c) {
        if (use.gradient || last[c] != kNone) last[c] = m;
      }
    }
  }
  return last;
}

/// Collects the chunks of one item, each once.
class UseCollector {
 public:
  UseCollector(const Layout& layout, ChunkTrace& chunk_trace)
      : layout_(layout),
        chunk_trace_(chunk_trace),
        seen_(chunk_trace.num_flat(), 0),
        created_(chunk_trace.num_flat(), false) {}

  void begin(ChunkTraceItem& item) {
    ++stamp_;
    item.first_use = static_cast<uint32_t>(chunk_trace_.uses.size());
  }
  void end(ChunkTraceItem& item) {
    item.num_uses = static_cast<uint32_t>(chunk_trace_.uses.size()) - item.first_use;
  }
  void read(Space space, ElementRange range) { add(space, range, false, false); }
  void write(Space space, ElementRange range) { add(space, range, true, false); }
  /// Reads chunks that an earlier item wrote; leaves out chunks that no item wrote.
  void consume(Space space, ElementRange range) { add(space, range, true, true); }

 private:
  void add(Space space, ElementRange elements, bool writes, bool only_created) {
    const ChunkRange range = layout_.chunks(space, elements);
    for (uint32_t index = range.first; index < range.last; ++index) {
      const FlatIndex flat_index = chunk_trace_.flat_index({space, index});
      if (seen_[flat_index] == stamp_ || (only_created && !created_[flat_index])) continue;
      seen_[flat_index] = stamp_;
      Touch touch = Touch::Read;
      if (writes) touch = created_[flat_index] ? Touch::Update : Touch::Create;
      created_[flat_index] = created_[flat_index] || writes;
      chunk_trace_.uses.push_back({flat_index, touch});
    }
  }

  const Layout& layout_;
  ChunkTrace& chunk_trace_;
  std::vector<uint32_t> seen_;
  std::vector<bool> created_;
  uint32_t stamp_ = 0;
};

void collect_call(UseCollector& collector, const Trace& trace, const Layout& layout,
                  const Call& call) {
  for (const ParameterUse& use : trace.uses_of(call)) {
    if (use.weight) {
      collector.read(Space::Weights, layout.weight_elements(use.parameter, use.rows));
    }
    if (use.gradient) {
      collector.write(Space::GradientSums,
                      layout.sum_elements(use.parameter, use.use, use.rows, call.group));
    }
  }
}

void collect_round(UseCollector& collector, const Layout& layout, ChunkIndex chunk) {
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

/// Calls [first, last].
struct Period {
  CallIndex first, last;
};

/// Sorts periods, and joins those with no call between them.
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

/// Adds a period. Most periods follow the last one, which then grows: there is little to sort.
void add(std::vector<Period>& periods, Period p) {
  const bool touches =
      !periods.empty() && periods.back().first <= p.first && p.first <= periods.back().last + 1;
  if (touches) {
    periods.back().last = std::max(periods.back().last, p.last);
  } else {
    periods.push_back(p);
  }
}

struct ChunkPeriods {
  std::vector<Period> lives, busy;  // busy: alive and not idle
};

std::vector<ChunkPeriods> periods_of_chunks(const Trace& trace, size_t chunk_bytes) {
  std::vector<ChunkPeriods> chunks(num_arena_chunks(trace, chunk_bytes));
  const bool any_rests = !trace.idle_intervals.empty();
  auto rest = trace.idle_intervals.begin();
  for (uint32_t s = 0; s < trace.activations.size(); ++s) {
    const ActivationSpan& span = trace.activations[s];
    const size_t first = span.offset / chunk_bytes;
    const size_t last = (span.offset + span.bytes - 1) / chunk_bytes;
    const auto is_busy = [&](CallIndex from, CallIndex to) {
      for (size_t c = first; c <= last; ++c) add(chunks[c].busy, {from, to});
    };
    for (size_t c = first; c <= last && any_rests; ++c) {
      add(chunks[c].lives, {span.first_call, span.last_call});
    }
    CallIndex from = span.first_call;
    for (; rest != trace.idle_intervals.end() && rest->span == s; ++rest) {
      is_busy(from, rest->last_before);
      from = rest->first_after;
    }
    is_busy(from, span.last_call);
  }
  for (ChunkPeriods& chunk : chunks) {
    join(chunk.busy);
    if (any_rests) {
      join(chunk.lives);
    } else {
      chunk.lives = chunk.busy;
    }
  }
  return chunks;
}

struct Happening {
  ItemIndex item;
  FlatIndex chunk;
};

/// Writes the events of one kind by item, and for one item in the given order.
void add_events(ChunkTrace& chunk_trace, ArenaChunkEvent event,
                std::span<const Happening> happenings) {
  const int e = static_cast<int>(event);
  for (const Happening& h : happenings) ++chunk_trace.items[h.item].num_events[e];
  uint32_t next = 0;
  for (ChunkTraceItem& item : chunk_trace.items) {
    item.first_event[e] = next;
    next += std::exchange(item.num_events[e], 0);
  }
  chunk_trace.events[e].resize(next);
  for (const Happening& h : happenings) {
    ChunkTraceItem& item = chunk_trace.items[h.item];
    chunk_trace.events[e][item.first_event[e] + item.num_events[e]++] = h.chunk;
  }
}

/// Makes events of arena chunks from the periods of activations.
void add_activations(ChunkTrace& chunk_trace, const Trace& trace, size_t chunk_bytes,
                     const std::vector<ItemIndex>& item_of_call) {
  const std::vector<ChunkPeriods> chunks = periods_of_chunks(trace, chunk_bytes);
  std::vector<Happening> happenings[kNumArenaChunkEvents];
  const auto happens = [&](ArenaChunkEvent event, CallIndex call, FlatIndex chunk) {
    happenings[static_cast<int>(event)].push_back({item_of_call[call], chunk});
  };
  for (uint32_t c = 0; c < chunks.size(); ++c) {
    const FlatIndex flat_index = chunk_trace.flat_index({Space::Activations, c});
    auto life = chunks[c].lives.begin();
    for (const Period& busy : chunks[c].busy) {
      while (life->last < busy.first) ++life;
      const bool begins = busy.first == life->first, ends = busy.last == life->last;
      happens(begins ? ArenaChunkEvent::Begin : ArenaChunkEvent::Needed, busy.first, flat_index);
      happens(ends ? ArenaChunkEvent::End : ArenaChunkEvent::Idle, busy.last, flat_index);
    }
  }
  for (int e = 0; e < kNumArenaChunkEvents; ++e) {
    add_events(chunk_trace, static_cast<ArenaChunkEvent>(e), happenings[e]);
  }
}

/// Chunks by the call after which they are rounded; for one call ascending.
std::vector<ChunkIndex> order_of_rounds(const std::vector<CallIndex>& last) {
  std::vector<ChunkIndex> order;
  for (ChunkIndex c{0}; c < last.size(); ++c) {
    if (last[c] != kNone) order.push_back(c);
  }
  std::ranges::stable_sort(order, {}, [&](ChunkIndex c) { return last[c]; });
  return order;
}

/// Counts first and then fills the lists, by chunk and by item.
void index_needs(ChunkTrace& chunk_trace) {
  const auto for_each_chunk = [&](const ChunkTraceItem& item, const auto& visit) {
    for (const ChunkUse& use : chunk_trace.uses_of(item)) visit(use.chunk);
    for (const ArenaChunkEvent event : {ArenaChunkEvent::Begin, ArenaChunkEvent::Needed}) {
      for (const FlatIndex chunk : chunk_trace.chunks_of(item, event)) visit(chunk);
    }
  };
  chunk_trace.first_need.assign(chunk_trace.num_flat() + 1, 0);
  std::vector<NeedIndex> next_of_item{NeedIndex(0)};
  for (const ChunkTraceItem& item : chunk_trace.items) {
    next_of_item.push_back(next_of_item.back());
    for_each_chunk(item, [&](FlatIndex chunk) {
      ++chunk_trace.first_need[chunk + 1];
      ++next_of_item.back();
    });
  }
  std::partial_sum(chunk_trace.first_need.begin(), chunk_trace.first_need.end(),
                   chunk_trace.first_need.begin());
  std::vector<ItemIndex> items(chunk_trace.first_need.back());  // by chunk
  std::vector<uint32_t> at(chunk_trace.first_need.begin(), chunk_trace.first_need.end() - 1);
  for (ItemIndex i{0}; i < chunk_trace.items.size(); ++i) {
    for_each_chunk(chunk_trace.items[i], [&](FlatIndex chunk) { items[at[chunk]++] = i; });
  }
  chunk_trace.needs.resize(items.size());
  chunk_trace.needs_of_chunk.resize(items.size());
  for (FlatIndex chunk{0}; chunk < chunk_trace.num_flat(); ++chunk) {
    for (uint32_t k = chunk_trace.first_need[chunk]; k < chunk_trace.first_need[chunk + 1]; ++k) {
      const NeedIndex need = next_of_item[items[k]]++;
      chunk_trace.needs[need] = {items[k], chunk};
      chunk_trace.needs_of_chunk[k] = need;
    }
  }
}

}  // namespace

ChunkId ChunkTrace::chunk_id(FlatIndex flat_index) const {
  int space = 0;
  while (flat_index >= first_flat[space + 1]) ++space;
  return {static_cast<Space>(space), flat_index - first_flat[space]};
}

uint32_t num_arena_chunks(const Trace& trace, size_t chunk_bytes) {
  return static_cast<uint32_t>((trace.arena_bytes + chunk_bytes - 1) / chunk_bytes);
}

ChunkTrace make_chunk_trace(const Trace& trace, const Layout& layout, bool with_gradients,
                            const Division& division) {
  ChunkTrace chunk_trace;
  chunk_trace.stores_groups = with_gradients && division.stores_groups();
  if (chunk_trace.stores_groups) {
    chunk_trace.trained = trained_parameters(trace, layout.num_parameters());
  }
  for (int s = 0; s < kNumSpaces; ++s) {
    const Space space = static_cast<Space>(s);
    const uint32_t count = space == Space::Activations
                               ? num_arena_chunks(trace, layout.chunk_bytes())
                               : layout.num_chunks(space);
    chunk_trace.first_flat[s + 1] = chunk_trace.first_flat[s] + count;
  }
  const std::vector<CallIndex> last = with_gradients
                                          ? last_contributions(trace, layout)
                                          : std::vector<CallIndex>(layout.num_chunks(), kNone);
  const std::vector<ChunkIndex> finished = order_of_rounds(last);
  auto next_finished = finished.begin();
  UseCollector collector(layout, chunk_trace);
  chunk_trace.items.reserve(trace.calls.size() + finished.size());
  std::vector<ItemIndex> item_of_call;
  item_of_call.reserve(trace.calls.size());
  for (CallIndex m{0}; m < trace.calls.size(); ++m) {
    item_of_call.push_back(ItemIndex(chunk_trace.items.size()));
    ChunkTraceItem& run = chunk_trace.items.emplace_back(ChunkTraceItem{.call = m});
    collector.begin(run);
    collect_call(collector, trace, layout, trace.calls[m]);
    collector.end(run);
    for (; next_finished != finished.end() && last[*next_finished] == m; ++next_finished) {
      ChunkTraceItem& finish =
          chunk_trace.items.emplace_back(ChunkTraceItem{.rounded_chunk = *next_finished});
      collector.begin(finish);
      if (!chunk_trace.stores_groups) collect_round(collector, layout, *next_finished);
      collector.end(finish);
    }
  }
  add_activations(chunk_trace, trace, layout.chunk_bytes(), item_of_call);
  index_needs(chunk_trace);
  return chunk_trace;
}

ChunkTrace with_updates(const ChunkTrace& plain, const Layout& layout,
                        std::span<const ChunkRecord> chunks) {
  ChunkTrace chunk_trace = plain;
  chunk_trace.items.clear();
  const auto add_update = [&](ChunkIndex chunk) {
    const ElementRange elements{chunk * layout.chunk_elements(), layout.chunk_elements(chunk)};
    ChunkTraceItem update{.updated_chunk = chunk,
                          .first_use = static_cast<uint32_t>(chunk_trace.uses.size())};
    chunk_trace.uses.push_back({chunk_trace.flat_index({Space::Weights, chunk}), Touch::Create});
    const ChunkRange gradients = layout.chunks(Space::Gradients, elements);
    for (uint32_t g = gradients.first; g < gradients.last; ++g) {
      chunk_trace.uses.push_back({chunk_trace.flat_index({Space::Gradients, g}), Touch::Read});
    }
    update.num_uses = static_cast<uint32_t>(chunk_trace.uses.size()) - update.first_use;
    chunk_trace.items.push_back(update);
  };
  const auto is_updated = [&](ChunkIndex c, UpdateTime time) {
    return chunks[c].is_on_device() && chunks[c].update == time;
  };
  for (const ChunkTraceItem& item : plain.items) {
    chunk_trace.items.push_back(item);
    const bool updates_now = item.is_round() && is_updated(item.rounded_chunk, UpdateTime::Early);
    if (updates_now) add_update(item.rounded_chunk);
  }
  for (ChunkIndex c{0}; c < chunks.size(); ++c) {
    if (is_updated(c, UpdateTime::AfterNorm)) add_update(c);
  }
  index_needs(chunk_trace);
  return chunk_trace;
}

uint32_t peak_of_chunks(const ChunkTrace& chunk_trace) {
  std::vector<ItemIndex> last_item(chunk_trace.num_flat(), kNone);
  std::vector<uint32_t> num_ended(chunk_trace.items.size(), 0);  // with this item
  std::vector<uint32_t> num_begun(chunk_trace.items.size(), 0);
  const auto is_needed = [&](FlatIndex chunk, ItemIndex item) {
    ItemIndex& last = last_item[chunk];
    if (last == kNone) ++num_begun[item];
    last = item;
  };
  for (ItemIndex i{0}; i < chunk_trace.items.size(); ++i) {
    const ChunkTraceItem& item = chunk_trace.items[i];
    for (const ChunkUse& use : chunk_trace.uses_of(item)) is_needed(use.chunk, i);
    for (const FlatIndex c : chunk_trace.chunks_of(item, ArenaChunkEvent::Begin)) is_needed(c, i);
    for (const FlatIndex c : chunk_trace.chunks_of(item, ArenaChunkEvent::End)) is_needed(c, i);
  }
  for (const ItemIndex last : last_item) {
    if (last != kNone) ++num_ended[last];
  }
  uint32_t num = 0, peak = 0;
  for (ItemIndex i{0}; i < chunk_trace.items.size(); ++i) {
    num += num_begun[i];
    peak = std::max(peak, num);
    num -= num_ended[i];
  }
  return peak;
}

std::vector<ChunkIndex> round_order(const ChunkTrace& chunk_trace) {
  std::vector<ChunkIndex> order;
  for (const ChunkTraceItem& item : chunk_trace.items) {
    if (item.is_round()) order.push_back(item.rounded_chunk);
  }
  return order;
}

std::vector<ChunkIndex> round_order(const Trace& trace, const Layout& layout) {
  return round_order(make_chunk_trace(trace, layout, true));
}

}  // namespace ebb
