#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <exception>
#include <iterator>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include "scheduler/plan/decide_chunks.h"
#include "scheduler/search/choose.h"
#include "scheduler/search/memory_sizes.h"
#include "scheduler/search/prepare.h"
#include "system/cores.h"
#include "system/thread_team.h"

namespace ebb {
namespace {

/// Throws ConfigError unless each group has a micro-batch and each rank a group, and the sums of
/// groups have a type in which they can be stored.
void check_groups(const TrainerOptions& options, uint32_t num_ranks) {
  const uint32_t count = options.gradient_accumulation, groups = options.groups.value_or(count);
  if (count == 0) {
    throw ConfigError("`gradient_accumulation` 0: a step has at least one micro-batch");
  }
  if (groups == 0 || groups > count) {
    throw ConfigError(
        fmt::format("`groups` {}: allowed is 1 to {}, the number of micro-batches "
                    "(`gradient_accumulation`)",
                    groups, count));
  }
  if (options.group_dtype != DType::F32 && options.group_dtype != DType::BF16) {
    throw ConfigError(fmt::format("`group_dtype` {}: sums of groups are stored in fp32 or bf16",
                                  name_of(options.group_dtype)));
  }
  if (groups >= num_ranks) return;
  const uint32_t enough = (num_ranks + count - 1) / count * count;
  throw ConfigError(
      options.groups && count >= num_ranks
          ? fmt::format("`groups` {} for {} ranks: each rank computes at least one group; try "
                        "`groups` {}",
                        groups, num_ranks, num_ranks)
          : fmt::format("{} micro-batches for {} ranks: each rank computes at least one; try "
                        "`gradient_accumulation` {}",
                        count, num_ranks, enough));
}

/// The options with the only schedule of updates that delayed ones can have. Throws ConfigError if
/// the request is for another one.
TrainerOptions with_delayed_schedule(TrainerOptions options) {
  ScheduleRequest& schedule = options.schedule;
  const bool fits = schedule.update.value_or(UpdateOrder::Overlap) == UpdateOrder::Overlap &&
                    schedule.device_updates.value_or(0) == 0 &&
                    schedule.speculated_chunks.value_or(0) == 0 &&
                    schedule.resident_chunks.value_or(0) == 0;
  if (!fits) {
    throw ConfigError(
        "TrainerOptions::delayed_updates: these updates run on the host during the next step, so "
        "of "
        "the schedule, update must be Overlap, and device_updates, speculated_chunks and "
        "resident_chunks 0, or they must not be given");
  }
  schedule.update = UpdateOrder::Overlap;
  return options;
}

bool may_store_sums_on_devices(const TrainerOptions& options, const Budgets& budgets) {
  const Division division = division_of(options, budgets.place);
  return division.stores_groups() && (budgets.place.num_machines == 1 || division.chains_sums) &&
         (budgets.peer_access || budgets.place.num_ranks == 1);
}

bool may_split_loads(const TrainerOptions& options, const Budgets& budgets) {
  return budgets.peer_access && can_split_loads(division_of(options, budgets.place));
}

/// Does a split load take less time than a whole one? Of n ranks, each loads 1 / n of the weights
/// and gathers the others.
bool is_split_faster(const RankPlace& place, const Machine& machine) {
  if (machine.load_bytes_per_s <= 0) return false;
  const double link_s = 1 / machine.load_bytes_per_s, num_ranks = place.ranks_per_machine();
  return (link_s + (num_ranks - 1) / peer_rate(machine)) / num_ranks < link_s;
}

/// choose() with split loads if they are faster, and without them if there is no device memory for
/// part slots. Sets the request to what was chosen.
Preparation choose_loads(const Model& model, TrainerOptions& options, const Budgets& budgets,
                         const Machine& machine) {
  std::optional<bool>& splits = options.schedule.splits_loads;
  if (!splits && may_split_loads(options, budgets) && is_split_faster(budgets.place, machine)) {
    splits = true;
    try {
      Preparation chosen = choose(model, options, budgets, machine);
      // A smaller budget works without split loads.
      chosen.smallest_device_bytes -= memory_of_part_slots(*chosen.layout, chosen.division);
      return chosen;
    } catch (const PlanError&) {
      splits = false;
    }
  }
  return choose(model, options, budgets, machine);
}

/// The rank with the most micro-batches; if sums are chained, of these on the second machine if it
/// has one, because the first one receives no running sums.
uint32_t busiest_rank(const Division& division) {
  uint32_t busiest = 0, most = 0;
  for (uint32_t rank = 0; rank < division.place.num_ranks; ++rank) {
    const uint32_t count = share_of(division, rank).micro_batches.count;
    const bool is_better = division.chains_sums && rank == division.place.ranks_per_machine();
    if (count > most || (count == most && is_better)) busiest = rank;
    most = std::max(most, count);
  }
  return busiest;
}

/// Adds the plans of a rank for the schedule of the preparation of another one. Throws if the rank
/// needs more memory.
void complete_as(Preparation& p, const Preparation& chosen, const Budgets& budgets) {
  if (p.division.splits_loads) {  // with the same blocks all ranks load the same weights
    p.block_memory_bytes = std::min(p.block_memory_bytes, chosen.block_memory_bytes);
    p.full_blocks = chosen.full_blocks;
  }
  if (p.num_blocks < p.smallest_blocks) throw_too_large_for_device(p, *budgets.device_memory);
  complete(p, plan_step(p, chosen.schedule));
  const size_t host_bytes = p.ledger.total(Tier::Host);
  if (budgets.host_memory && host_bytes > *budgets.host_memory) {
    throw HomeTooSmall(too_large_for_host(p.ledger, *budgets.host_memory), host_bytes);
  }
  p.candidates = chosen.candidates;
  p.chosen = chosen.chosen;
  p.smallest_device_bytes = chosen.smallest_device_bytes;
  p.full_device_bytes = chosen.full_device_bytes;
  p.layers = chosen.layers;
}

/// The number of micro-batches of each group, and of the evaluation.
std::vector<uint32_t> share_key(const Preparation& p, uint32_t rank) {
  std::vector<uint32_t> key = share_of(p.division, rank).group_of;
  const uint32_t num_ranks = p.division.place.num_ranks;
  key.push_back(part_of(p.options.evaluation_batches, rank, num_ranks).count);
  return key;
}

/// The ledger of a rank with an equal share: the plans differ only in the owners of chunks.
Ledger ledger_as(const Preparation& like, uint32_t rank) {
  Plan plan{.num_blocks = like.plan.num_blocks,
            .chunks = like.plan.chunks,
            .division = like.division,
            .sum_slots = like.plan.sum_slots,
            .stored_sums = like.plan.stored_sums,
            .stored_activations = like.plan.stored_activations,
            .fetch_slots = like.plan.fetch_slots,
            .running_slots = like.plan.running_slots};
  plan.division.place.rank = rank;
  for (ChunkRecord& chunk : plan.chunks) {
    chunk.is_mine = chunk.owner == rank;
    chunk.is_near = plan.division.place.is_near(chunk.owner);
    chunk.is_copied = like.schedule.copies_weights && !chunk.is_near;
  }
  plan.gradient_buffers = num_gradient_buffers(
      plan.chunks,
      {.update_after_norm = updates_after_norm(like.options), .schedule = like.schedule});
  return ledger_with(like, plan);
}

/// All that the ledger of a rank depends on, besides its share: of its chunks the number, the
/// elements, and those on its device and with each time of an update; the elements on its device;
/// and the chunks that it fetches for its machine.
using ChunksOfRank = std::array<uint64_t, 11>;
ChunksOfRank chunks_of(const Preparation& like, uint32_t rank) {
  ChunksOfRank chunks{};
  const auto num_chunks = static_cast<uint32_t>(like.plan.chunks.size());
  for (ChunkIndex c{rank}; c < num_chunks; c = ChunkIndex(c + like.division.place.num_ranks)) {
    ++chunks[0];
    chunks[1] += like.layout->chunk_elements(c);
    const ChunkRecord& record = like.plan.chunks[c];
    ++chunks[2 + static_cast<size_t>(record.update)];
    if (!record.is_on_owner()) continue;
    ++chunks[8];
    chunks[9] += like.layout->chunk_elements(c);
  }
  RankPlace place = like.division.place;
  place.rank = rank;
  for (ChunkIndex c{0}; like.schedule.copies_weights && c < num_chunks; ++c) {
    chunks[10] += !place.is_near(owner_of(c, place.num_ranks)) && place.fetches(c);
  }
  return chunks;
}

/// Does the host memory of each rank hold what the chosen schedule needs? The ranks own different
/// numbers of chunks.
bool fits_all(const Preparation& chosen, const Budgets& budgets) {
  if (!budgets.host_memory) return true;
  std::set<ChunksOfRank> known;
  for (uint32_t rank = 0; rank < budgets.place.num_ranks; ++rank) {
    if (!known.insert(chunks_of(chosen, rank)).second) continue;
    if (ledger_as(chosen, rank).total(Tier::Host) > *budgets.host_memory) return false;
  }
  return true;
}

/// All ranks have the same schedule: the best one of the busiest rank, on its part of the machine.
/// No other rank needs more device memory: each has at most as many micro-batches and groups.
Preparation prepare_rank(const Model& model, TrainerOptions options, const Budgets& budgets,
                         const Machine& machine) {
  Budgets of_busiest = budgets;
  of_busiest.place.rank = busiest_rank(division_of(options, budgets.place));
  const Machine of_rank = machine_of_rank(machine, budgets.place.ranks_per_machine());
  Preparation chosen = choose_loads(model, options, of_busiest, of_rank);
  const bool may_change = !options.schedule.copies_weights && chosen.schedule.copies_weights;
  if (may_change && !fits_all(chosen, budgets)) {
    options.schedule.copies_weights = false;
    chosen = choose(model, options, of_busiest, of_rank);
  }
  if (of_busiest.place == budgets.place) return chosen;
  Preparation p = prepare_context(model, options, chosen.schedule, budgets,
                                  observe_layers(model, options, budgets));
  complete_as(p, chosen, budgets);
  return p;
}

/// So many ranks are always simulated together; more of them if that takes about a second, or a
/// third of it for the ranks of a machine, which stand for all. The time grows with the operations
/// of all ranks, and for each of them with the number of ranks.
constexpr uint64_t kAlwaysTogether = 8;
constexpr uint64_t kMostTogether = 30'000'000, kMostOfMachine = 10'000'000;

/// The ranks that are simulated.
IndexRange ranks_to_simulate(const Preparation& p) {
  const RankPlace& place = p.division.place;
  const uint32_t busiest = busiest_rank(p.division), of_machine = place.ranks_per_machine();
  const auto is_short = [&](uint64_t num_ranks, uint64_t most) {
    return num_ranks * num_ranks * p.plan.ops.size() <= most;
  };
  if (place.num_ranks <= kAlwaysTogether || is_short(place.num_ranks, kMostTogether)) {
    return {0, place.num_ranks};
  }
  if (!is_short(of_machine, kMostOfMachine)) return {busiest, 1};
  return {place.machine_of(busiest) * of_machine, of_machine};
}

/// The ranks that prepare_others() prepares.
std::vector<uint32_t> ranks_to_prepare(const Preparation& p) {
  const IndexRange simulated = ranks_to_simulate(p);
  std::set<uint32_t> ranks;
  std::set<std::vector<uint32_t>> shares = {share_key(p, p.division.place.rank)};
  for (uint32_t i = 0; i < simulated.count; ++i) {
    ranks.insert(simulated.first + i);
    shares.insert(share_key(p, simulated.first + i));
  }
  for (uint32_t rank = 0; rank < p.division.place.num_ranks; ++rank) {
    if (shares.insert(share_key(p, rank)).second) ranks.insert(rank);
  }
  ranks.erase(p.division.place.rank);
  return {ranks.begin(), ranks.end()};
}

/// All that are prepared, in the order of the ranks.
std::vector<const Preparation*> in_order(const Preparation& prepared,
                                         std::span<const Preparation> others) {
  std::vector<const Preparation*> ranks = {&prepared};
  for (const Preparation& p : others) ranks.push_back(&p);
  std::ranges::sort(ranks, {}, [](const Preparation* p) { return p->division.place.rank; });
  return ranks;
}

/// [parameter chunk] how often a step fetches its weights, or this rank's part of them, to a slot
/// if the chunk is of another machine.
std::vector<uint32_t> fetches_to_slots(const Preparation& p) {
  std::vector<uint32_t> num(p.plan.chunks.size());
  if (p.schedule.copies_weights) {  // the loads after an early update
    for (const ChunkIndex c : p.plan.chunks_that(&ChunkRecord::ends_on_device)) num[c] = 1;
    return num;
  }
  for (const Op& op : p.plan.ops) {
    const bool loads = op.stream == StreamKind::Load && is_copy(op);
    if (loads && op.chunk.space == Space::Weights) ++num[op.chunk.index];
  }
  return num;
}

/// What a rank without a plan fetches in a step. `num_fetches`: those of a rank with an equal
/// share.
size_t fetched_by(const RankPlace& place, const Preparation& like,
                  std::span<const uint32_t> num_fetches) {
  Division division = like.division;
  division.place = place;
  size_t fetched = 0;
  for (ChunkIndex c{0}; c < num_fetches.size(); ++c) {
    const uint32_t owner = owner_of(c, place.num_ranks);
    if (place.is_near(owner)) continue;
    Op fetch = make_fetch({Space::Weights, c}, owner);
    if (like.schedule.copies_weights && place.fetches(c)) {
      fetched += bytes_of_move(fetch, *like.layout, division);
    }
    fetch.split = division.splits_loads ? 0 : kNone;
    fetched += num_fetches[c] * bytes_of_move(fetch, *like.layout, division);
  }
  return fetched;
}

}  // namespace

std::vector<Preparation> prepare_others(const Preparation& chosen, const Model& model,
                                        const Budgets& budgets) {
  const TrainerOptions& options = chosen.options;
  const std::vector<ObservedLayer> layers = observe_layers(model, options, budgets);
  std::vector<Preparation> others;
  Budgets of_rank = budgets;
  // One dry run after the other, because a model need not be thread-safe.
  of_rank.place = chosen.division.place;
  for (const uint32_t rank : ranks_to_prepare(chosen)) {
    of_rank.place.rank = rank;
    others.push_back(prepare_context(model, options, chosen.schedule, of_rank, layers));
  }
  ThreadTeam team(num_usable_cores());
  std::vector<std::exception_ptr> failed(others.size());
  team.for_each(std::ssize(others), [&](int64_t i) {
    const auto at = static_cast<size_t>(i);
    try {
      complete_as(others[at], chosen, budgets);
    } catch (...) {
      failed[at] = std::current_exception();
    }
  });
  for (const std::exception_ptr& error : failed) {
    if (error) std::rethrow_exception(error);
  }
  return others;
}

StepPrediction predict_step(const Preparation& prepared, std::span<const Preparation> others,
                            const Machine& machine) {
  const IndexRange simulated = ranks_to_simulate(prepared);
  std::vector<RankStep> steps;
  for (const Preparation* const p : in_order(prepared, others)) {
    if (p->division.place.rank - simulated.first >= simulated.count) continue;
    steps.push_back({p->plan, p->trace, *p->layout});
  }
  StepPrediction predicted{.num_simulated = simulated.count};
  for (const Simulation& s : simulate_ranks(steps, machine)) {
    predicted.seconds = std::max(predicted.seconds, s.seconds);
  }
  predicted.bound = lower_bound(steps, machine, updates_after_norm(prepared.options));
  return predicted;
}

std::vector<RankTotals> totals_of_ranks(const Preparation& prepared,
                                        std::span<const Preparation> others) {
  const std::vector<const Preparation*> ranks = in_order(prepared, others);
  std::map<std::vector<uint32_t>, const Preparation*> by_share;
  std::map<uint32_t, const Preparation*> by_rank;
  for (const Preparation* const p : ranks) {
    by_share.emplace(share_key(*p, p->division.place.rank), p);
    by_rank.emplace(p->division.place.rank, p);
  }
  std::map<const Preparation*, std::vector<uint32_t>> fetches;
  std::map<std::pair<const Preparation*, ChunksOfRank>, Ledger> ledgers;
  std::vector<RankTotals> totals;
  RankPlace place = prepared.division.place;
  for (place.rank = 0; place.rank < place.num_ranks; ++place.rank) {
    const auto itself = by_rank.find(place.rank);
    const Preparation& like =
        itself != by_rank.end() ? *itself->second : *by_share.at(share_key(prepared, place.rank));
    totals.push_back({.num_micro_batches = like.share.micro_batches.count,
                      .loaded_bytes = like.plan.loaded_bytes,
                      .stored_bytes = like.plan.stored_bytes,
                      .fetched_bytes = like.plan.fetched_bytes});
    Ledger& ledger = ledgers[{&like, chunks_of(like, place.rank)}];
    if (ledger.entries().empty()) {
      ledger = itself != by_rank.end() ? like.ledger : ledger_as(like, place.rank);
    }
    totals.back().ledger = ledger;
    if (itself != by_rank.end() || place.num_machines == 1) continue;
    std::vector<uint32_t>& num = fetches[&like];
    if (num.empty()) num = fetches_to_slots(like);
    totals.back().fetched_bytes = fetched_by(place, like, num);
  }
  return totals;
}

Preparation prepare(const Model& model, const TrainerOptions& options, const Budgets& budgets,
                    const Machine& machine) {
  check_groups(options, budgets.place.num_ranks);
  const std::optional<RecomputeRequest>& recompute = options.schedule.recompute;
  const auto* const layers = recompute ? std::get_if<Recompute>(&*recompute) : nullptr;
  if (layers != nullptr && layers->layers_at_once == 0) {
    throw ConfigError("Recompute::layers_at_once is 0: 1 or more layers run again at once");
  }
  if (!(options.dropout >= 0 && options.dropout < 1)) {
    throw ConfigError(
        fmt::format("`dropout` {:g}: allowed is a number from 0 to below 1", options.dropout));
  }
  const bool sums_on_devices = options.schedule.sums_on_devices.value_or(false);
  if (sums_on_devices && !may_store_sums_on_devices(options, budgets)) {
    throw ConfigError(fmt::format(
        "the schedule asks for sums of groups on devices, with {} ranks on {} machines: that needs "
        "groups whose sums are stored, one machine or chained sums, and, with several ranks, "
        "devices "
        "of a machine that can read each other's memory (Budgets::peer_access)",
        budgets.place.num_ranks, budgets.place.num_machines));
  }
  if (options.schedule.splits_loads.value_or(false) && !may_split_loads(options, budgets)) {
    throw ConfigError(fmt::format(
        "the schedule asks for split loads, with {} ranks on {} machines and {} micro-batches: "
        "that "
        "needs several ranks on a machine whose devices can read each other's memory "
        "(Budgets::peer_access), and equal work: a number of groups that is a multiple of the "
        "number of ranks, and of which the number of micro-batches is a multiple",
        budgets.place.num_ranks, budgets.place.num_machines, options.gradient_accumulation));
  }
  const uint32_t scale = options.initial_loss_scale;
  if (!std::has_single_bit(scale) || scale > kLargestLossScale) {
    throw ConfigError(fmt::format("an initial loss scale of {}: allowed is a power of two up to {}",
                                  scale, kLargestLossScale));
  }
  for (const InputSpec& spec : model.inputs()) {
    if (!spec.persistent) continue;
    throw ConfigError(fmt::format(
        "input '{}' is persistent: only inference has persistent inputs, not training", spec.name));
  }
  return prepare_rank(model, options.delayed_updates ? with_delayed_schedule(options) : options,
                      budgets, machine);
}

}  // namespace ebb
