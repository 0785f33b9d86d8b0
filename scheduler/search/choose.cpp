#include "scheduler/search/choose.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <deque>
#include <iterator>
#include <limits>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>

#include "device/planes.h"
#include "scheduler/plan/kept_mappings.h"
#include "scheduler/plan/late_stores.h"
#include "scheduler/plan/simulate.h"
#include "scheduler/search/prepare.h"
#include "scheduler/search/refine.h"
#include "scheduler/search/settings.h"
#include "system/cores.h"
#include "system/thread_team.h"

namespace ebb {
namespace {

// Candidates that take longer than kNear times the shortest time are not refined. The factor is 2,
// because speculative updates alone can reduce the time of a step to 0.6.
constexpr double kNear = 2;

/// How many of the best candidates with different plans are improved: as many as have `operations`
/// operations in their plans together, but at least `fewest` and at most `most`; of these, only
/// those that take at most `near` times as long as the best one. Planning so many operations again
/// takes less than about a second.
struct Count {
  size_t fewest, most, operations;
  double near = kNear;
};
constexpr Count kRefined{.fewest = 4, .most = 24, .operations = 800'000};
// Candidates near the best one are also planned with other amounts of recomputation, and those very
// near with small changes of all settings. Without these limits, plans of 13B take about 1.4
// times as long to make, and the steps of 91 plans of bench/compare_plans are as long (1.0001 x on
// average).
constexpr Count kChanged{.fewest = 2, .most = 12, .operations = 150'000, .near = 1.2};
constexpr Count kRefinedFinely{.fewest = 2, .most = 12, .operations = 150'000, .near = 1.1};
constexpr int kFewTries = 3;
// So many contexts are kept, because candidates come to the same amounts of recomputation.
constexpr size_t kMostContexts = 32;
constexpr auto kAny = [](const PlannedCandidate&) { return true; };

/// As far as the figures tell: settings may differ that have no effect.
bool have_same_plan(const PlannedCandidate& a, const PlannedCandidate& b) {
  return a.candidate.seconds == b.candidate.seconds &&
         a.candidate.moved_bytes == b.candidate.moved_bytes &&
         a.plan.ops.size() == b.plan.ops.size() && have_same_context(a.asked, b.asked);
}

/// The most host memory that a chunk saves if the device updates it: all its planes and its
/// gradient buffer.
size_t home_bytes_of_chunk(const Layout& layout) {
  return state_bytes(layout.weight_type(), layout.chunk_elements()) +
         layout.chunk_elements() * size_of(layout.gradient_type());
}

/// Host and device memory fit alone, but not together. `room_bytes` is what the smallest home
/// leaves for the device, and `least_device_bytes` is what the smallest device budget takes.
class TogetherTooLarge : public PlanError {
 public:
  TogetherTooLarge(const std::string& message, size_t room_bytes, size_t least_device_bytes)
      : PlanError(message), room_bytes(room_bytes), least_device_bytes(least_device_bytes) {}
  size_t room_bytes, least_device_bytes;
};

/// Plans every schedule on several threads. The result does not depend on their order.
class Choice {
 public:
  Choice(const Model& model, const TrainerOptions& options, const Budgets& budgets,
         const Machine& machine)
      : model_(model),
        requested_(options),
        budgets_(budgets),
        machine_(machine),
        evaluator_(budgets, machine),
        layers_(observe_layers(model, options, budgets)),
        schedules_(schedules_to_try(model, options, budgets)),
        tried_(schedules_.size()) {}

  Preparation run() {
    ThreadTeam team(num_usable_cores());
    team.for_each(std::ssize(schedules_), [&](int64_t i) { try_schedule(static_cast<size_t>(i)); });
    for (const Tried& tried : tried_) {
      if (tried.failed) std::rethrow_exception(tried.failed);
    }
    if (tried_[0].refused) std::rethrow_exception(tried_[0].refused);
    if (planned_.empty()) refuse();
    std::ranges::sort(planned_, comes_first);
    const Refinement refinement(
        requested_, evaluator_, [this](const Schedule& schedule) { return run_dry(schedule); },
        least_s_);
    add_speculative(team, refinement);
    improve(team, fastest(kRefined, kAny), [&](PlannedCandidate& c) { refinement.refine(c); });
    improve(team,
            fastest(kChanged,
                    [&](const PlannedCandidate& c) { return refinement.may_change_trace(c); }),
            [&](PlannedCandidate& c) { refinement.change_trace(c); });
    improve(team, fastest(kRefinedFinely, kAny),
            [&](PlannedCandidate& c) { refinement.refine_finely(c); });
    return take(planned_[0]);
  }

 private:
  /// The results of one of schedules_to_try().
  struct Tried {
    /// `refused`: the model cannot run with this schedule. `failed`: any other error.
    std::exception_ptr refused, failed;
    std::vector<Candidate> candidates;
    /// The error of the row that needs the least host memory, and the bytes that it needs.
    std::string too_large_at_home;
    size_t least_at_home = SIZE_MAX;
    /// Candidates with the most device updates that need too much host memory all the same. They
    /// are not planned. They need at least candidate.host_bytes of host memory.
    std::vector<PlannedCandidate> fallbacks;
    std::shared_ptr<const Preparation> too_large_for_device;
  };

  void try_schedule(size_t schedule_index) {
    Tried& tried = tried_[schedule_index];
    try {
      consider(schedule_index, tried);
    } catch (...) {
      tried.failed = std::current_exception();
    }
  }

  void consider(size_t schedule_index, Tried& tried) {
    std::shared_ptr<const Preparation> context;
    try {
      context = run_dry(schedules_[schedule_index]);
    } catch (const ConfigError&) {
      // A model may use activations in a way that only the first, simplest schedule allows.
      tried.refused = std::current_exception();
      return;
    }
    if (context->num_blocks < context->smallest_blocks) tried.too_large_for_device = context;
    for (const auto& [update, copies_weights] : ways_to_get_weights()) {
      PlannedCandidate c{
          .context = context, .asked = context->schedule, .schedule_index = schedule_index};
      c.asked.update = update;
      c.asked.copies_weights = copies_weights;
      if (update == UpdateOrder::Speculate) {
        c.asked.speculated_chunks = requested_.schedule.speculated_chunks.value_or(UINT32_MAX);
      }
      c.row = tried.candidates.size();
      c.candidate = describe(c);
      if (!tried.too_large_for_device) {
        plan_at_all(c, tried);
      }
      tried.candidates.push_back(c.candidate);
      if (c.candidate.why_not.empty()) keep(std::move(c));
    }
  }

  /// All combinations of when updates run and who fetches weights.
  std::vector<std::pair<UpdateOrder, bool>> ways_to_get_weights() const {
    std::vector<std::pair<UpdateOrder, bool>> ways;
    for (const UpdateOrder update : update_orders(requested_.schedule)) {
      const bool may_copy = budgets_.place.num_machines > 1;
      const std::optional<bool>& copies = requested_.schedule.copies_weights;
      if (may_copy && copies.value_or(true)) ways.emplace_back(update, true);
      if (!may_copy || !copies.value_or(false)) ways.emplace_back(update, false);
    }
    return ways;
  }

  /// Plans the candidate. If host memory is too small, plans it again with more device updates, as
  /// few as are necessary. Chunks that the device updates leave less of its memory for gradient
  /// sums, so host memory may be too small with many of them too.
  void plan_at_all(PlannedCandidate& c, Tried& tried) {
    plan_at_home(c, tried);
    const size_t room = budgets_.host_memory.value_or(SIZE_MAX), needed = c.candidate.host_bytes;
    const uint32_t most = most_device_updates(*c.context);
    if (needed <= room || requested_.schedule.device_updates || most == 0) return;
    if (plan_with_few_device_updates(c, tried)) return;
    const size_t spared = most * home_bytes_of_chunk(*c.context->layout);
    PlannedCandidate fallbacks{.context = c.context, .asked = c.asked, .candidate = describe(c)};
    fallbacks.asked.device_updates = most;
    fallbacks.candidate.host_bytes = needed - std::min(needed, spared);
    if (fallbacks.candidate.host_bytes > room)
      return tried.fallbacks.push_back(std::move(fallbacks));
    fallbacks.row = c.row;
    fallbacks.schedule_index = c.schedule_index;
    c = std::move(fallbacks);
    plan_at_home(c, tried);
    if (!c.candidate.why_not.empty()) return;
    const double share =
        static_cast<double>(needed - room) / static_cast<double>(needed - c.candidate.host_bytes);
    const auto enough = static_cast<uint32_t>(std::ceil(share * most));
    evaluator_.replaces(changed(c, [&](Schedule& s) { s.device_updates = enough; }), c);
  }

  /// Returns whether a plan fits with as many device updates as make room for the states that host
  /// memory has no room for.
  bool plan_with_few_device_updates(PlannedCandidate& c, Tried& tried) const {
    const size_t of_chunk = home_bytes_of_chunk(*c.context->layout);
    const size_t room = *budgets_.host_memory;
    const uint32_t most = most_device_updates(*c.context);
    PlannedCandidate other = changed(c, [](Schedule&) {});
    uint32_t num = 0;
    for (int i = 0; i < kFewTries; ++i) {
      const size_t missing = other.candidate.host_bytes - room;
      num += static_cast<uint32_t>((missing + of_chunk - 1) / of_chunk);
      if (num >= most) return false;
      other.asked.device_updates = num;
      other.candidate = describe(other);
      plan_at_home(other, tried);
      if (other.candidate.why_not.empty()) {
        c = std::move(other);
        return true;
      }
    }
    return false;
  }

  /// Plans the candidate as its schedule says. If host memory is too small for the undo
  /// logs, halves the number of speculative updates until it fits.
  void plan_at_home(PlannedCandidate& c, Tried& tried) const {
    const bool may_choose =
        may_choose_speculated(requested_) && c.asked.update == UpdateOrder::Speculate;
    for (uint32_t num = c.context->layout->num_chunks();; num /= 2) {
      if (may_choose) c.asked.speculated_chunks = num;
      c.plan = plan_step(*c.context, c.asked);
      std::string too_large = evaluator_.evaluate(c);
      if (too_large.empty()) return evaluator_.bound(c);
      if (!may_choose || num == 0) return refuse_at_home(c, std::move(too_large), tried);
      c.candidate = describe(c);
    }
  }
  /// Stores the error of the candidate if it needs the least host memory so far.
  static void refuse_at_home(const PlannedCandidate& c, std::string too_large, Tried& tried) {
    if (c.candidate.host_bytes >= tried.least_at_home) return;
    tried.least_at_home = c.candidate.host_bytes;
    tried.too_large_at_home = std::move(too_large);
  }

  /// Adds the candidates with speculative updates.
  void add_speculative(ThreadTeam& team, const Refinement& refinement) {
    std::vector<std::optional<PlannedCandidate>> speculative(planned_.size());
    team.for_each(std::ssize(speculative), [&](int64_t i) {
      const auto at = static_cast<size_t>(i);
      speculative[at] = refinement.speculative(planned_[at]);
    });
    for (std::optional<PlannedCandidate>& c : speculative) {
      if (c) planned_.push_back(std::move(*c));
    }
    std::ranges::sort(planned_, comes_first);
  }

  /// The fastest candidates with different plans for which `is_meant` is true. REQUIRES: planned_
  /// is sorted.
  template <class IsMeant>
  std::vector<PlannedCandidate*> fastest(const Count& count, const IsMeant& is_meant) {
    const size_t num_operations = std::max<size_t>(planned_[0].plan.ops.size(), 1);
    const size_t most = std::clamp(count.operations / num_operations, count.fewest, count.most);
    std::vector<PlannedCandidate*> found;
    for (PlannedCandidate& c : planned_) {
      const bool is_new = found.empty() || !have_same_plan(*found.back(), c);
      const bool is_near = c.candidate.seconds <= count.near * planned_[0].candidate.seconds;
      if (found.size() < most && is_new && is_near && is_meant(c)) found.push_back(&c);
    }
    return found;
  }

  /// Applies `way` to the candidates, then sorts all of them again.
  template <class Way>
  void improve(ThreadTeam& team, const std::vector<PlannedCandidate*>& which, const Way& way) {
    team.for_each(std::ssize(which), [&](int64_t i) { way(*which[static_cast<size_t>(i)]); });
    std::ranges::sort(planned_, comes_first);
  }

  /// Returns the context of the schedule: that of an earlier dry run, or else that of a new one.
  /// Dry runs run one after the other, because a model need not be thread-safe.
  std::shared_ptr<const Preparation> run_dry(const Schedule& schedule) {
    std::lock_guard lock(model_mutex_);
    for (const auto& context : contexts_) {
      if (have_same_context(context->schedule, schedule)) return context;
    }
    contexts_.push_front(std::make_shared<const Preparation>(
        prepare_context(model_, requested_, schedule, budgets_, layers_)));
    auto context = contexts_.front();
    if (contexts_.size() > kMostContexts) contexts_.pop_back();
    return context;
  }

  /// The row of a candidate without a plan.
  static Candidate describe(const PlannedCandidate& c) {
    const Preparation& context = *c.context;
    Candidate candidate{.schedule = c.asked,
                        .flops = context.flops,
                        .smallest_device_bytes = context.smallest_device_bytes};
    if (context.num_blocks < context.smallest_blocks) {
      candidate.why_not =
          fmt::format("needs {} on the device", format_bytes(context.smallest_device_bytes));
    }
    return candidate;
  }

  /// Adds a planned candidate, and removes those that are too slow to be refined.
  void keep(PlannedCandidate candidate) {
    std::lock_guard lock(planned_mutex_);
    least_s_ = std::min(least_s_, candidate.candidate.seconds);
    planned_.push_back(std::move(candidate));
    std::erase_if(planned_, [&](const PlannedCandidate& c) {
      return c.candidate.seconds > kNear * least_s_;
    });
  }

  /// Gives the plan blocks with which a GPU maps little, and lists its stores late. On the host
  /// device a block moves to the address of its chunk each time.
  void arrange(PlannedCandidate& best, const Preparation& p) const {
    Simulation times = simulate(best.plan, p.trace, *p.layout, machine_);
    const bool has_mappings = p.device.kind == DeviceKind::Cuda && times.seconds > 0;
    if (auto kept = has_mappings ? with_kept_mappings(best.plan, times.ops) : std::nullopt) {
      Simulation times_of_kept = simulate(*kept, p.trace, *p.layout, machine_);
      if (times_of_kept.seconds <= times.seconds * (1 + kEqualSeconds)) {
        best.plan = std::move(*kept);
        times = std::move(times_of_kept);
        best.candidate.seconds = times.seconds;
      }
    }
    best.plan = with_late_stores(std::move(best.plan), times.ops);
  }

  /// The preparation of the best candidate, with the table of all candidates.
  Preparation take(PlannedCandidate& best) {
    Preparation prepared = *best.context;
    prepared.schedule = best.asked;
    // The plans of several ranks would need the times of all ranks.
    if (budgets_.place.num_ranks == 1) arrange(best, prepared);
    complete(prepared, std::move(best.plan));
    prepared.layers =
        summarize_layers(prepared.schedule.recompute, prepared.layer_lists, layers_, machine_);
    // In reverse, so that the best candidate of a row is stored last.
    for (auto c = planned_.crbegin(); c != planned_.crend(); ++c) {
      tried_[c->schedule_index].candidates[c->row] = c->candidate;
    }
    for (size_t i = 0; i < tried_.size(); ++i) {
      if (i == best.schedule_index) prepared.chosen = prepared.candidates.size() + best.row;
      std::ranges::copy(tried_[i].candidates, std::back_inserter(prepared.candidates));
    }
    prepared.smallest_device_bytes =
        std::min(prepared.smallest_device_bytes, smallest_device_bytes());
    return prepared;
  }

  /// Plans fallbacks until the least host memory with which a candidate works is known.
  void plan_fallbacks() {
    std::vector<PlannedCandidate> all;
    for (Tried& tried : tried_) std::ranges::move(tried.fallbacks, std::back_inserter(all));
    std::ranges::sort(all, {}, [](const PlannedCandidate& c) { return c.candidate.host_bytes; });
    Tried& least = *std::ranges::min_element(tried_, {}, &Tried::least_at_home);
    for (PlannedCandidate& c : all) {
      if (c.candidate.host_bytes >= least.least_at_home) return;
      plan_at_home(c, least);
    }
  }

  /// Throws the error for budgets in which no candidate fits.
  [[noreturn]] void refuse() {
    plan_fallbacks();
    const auto least = std::ranges::min_element(tried_, {}, &Tried::least_at_home);
    if (!least->too_large_at_home.empty()) {
      if (least->least_at_home <= budgets_.host_memory.value_or(SIZE_MAX)) {
        const size_t total = budgets_.total_memory.value_or(0);
        throw TogetherTooLarge(least->too_large_at_home,
                               total - std::min(total, least->least_at_home),
                               smallest_device_bytes());
      }
      throw HomeTooSmall(least->too_large_at_home, least->least_at_home);
    }
    const Preparation* nearest = nullptr;
    for (const Tried& tried : tried_) {
      const Preparation* const context = tried.too_large_for_device.get();
      const bool nearer =
          context != nullptr &&
          (nearest == nullptr || context->smallest_device_bytes < nearest->smallest_device_bytes);
      if (nearer) nearest = context;
    }
    throw_too_large_for_device(*nearest, budgets_.device_memory.value_or(0));
  }

  /// The smallest device budget with which one of the schedules works if host memory suffices.
  size_t smallest_device_bytes() const {
    size_t bytes = SIZE_MAX;
    for (const Tried& tried : tried_) {
      for (const Candidate& c : tried.candidates) bytes = std::min(bytes, c.smallest_device_bytes);
    }
    return bytes;
  }

  const Model& model_;
  const TrainerOptions& requested_;
  const Budgets& budgets_;
  const Machine& machine_;
  Evaluator evaluator_;
  const std::vector<ObservedLayer> layers_;
  const std::vector<Schedule> schedules_;
  std::vector<Tried> tried_;                                 // by index in schedules_
  std::deque<std::shared_ptr<const Preparation>> contexts_;  // of the latest dry runs, newest first
  std::mutex model_mutex_, planned_mutex_;
  std::vector<PlannedCandidate> planned_;  // at most kNear times slower than the fastest
  double least_s_ = std::numeric_limits<double>::infinity();
};

}  // namespace

Preparation choose(const Model& model, const TrainerOptions& options, const Budgets& budgets,
                   const Machine& machine) {
  try {
    return Choice(model, options, budgets, machine).run();
  } catch (const TogetherTooLarge& refused) {
    // Other functions plan for other ranks with the budgets of the caller.
    const bool is_open = !budgets.device_memory && budgets.place.num_ranks == 1;
    if (!is_open || refused.room_bytes < refused.least_device_bytes) throw;
    Budgets smaller = budgets;
    for (const size_t bytes : {refused.room_bytes, refused.least_device_bytes}) {
      smaller.device_memory = bytes;
      try {
        return Choice(model, options, smaller, machine).run();
      } catch (const PlanError&) {  // with less device memory, more is in host memory
      }
    }
    throw;
  }
}

}  // namespace ebb
