#include "scheduler/choose.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <limits>
#include <memory>
#include <mutex>
#include <utility>

#include "device/host/parallel.h"
#include "scheduler/device_state.h"
#include "scheduler/prepare.h"

namespace ebb {
namespace {

// How many of the fastest settings are refined, and how much slower than the fastest they may be:
// planning all of them again would take longer than a second. Updates in hope alone make some take
// 0.6 of the time. In none of bench_choose's large cases does another, refined by hand, overtake
// the choice.
constexpr size_t kMostRefined = 4;
constexpr double kNear = 2;
constexpr int kHalvings = 3;

constexpr double kCarriedShares[] = {0, 0.25, 0.4, 0.6};

/// At most: a chunk that lives on the device has no planes there, and may have no gradient.
size_t home_bytes_of_chunk(const Layout& layout) {
  return layout.chunk_elements() *
         (state_bytes_per_element(layout.weight_type()) + size_of(layout.gradient_type()));
}

/// A candidate that fits, with all that it takes to make it the choice.
struct Contender {
  std::shared_ptr<const Preparation> ground;
  TrainerOptions options;
  Plan plan = {};
  Candidate candidate = {};
  size_t setting = 0, row = 0;  ///< where it stands in the table
};

bool comes_first(const Contender& a, const Contender& b) {
  if (is_better(a.candidate, b.candidate)) return true;
  if (is_better(b.candidate, a.candidate)) return false;
  return std::pair(a.setting, a.row) < std::pair(b.setting, b.row);
}

/// Tries every setting, on several threads; what comes out does not depend on which is first.
class Choice {
 public:
  Choice(const Model& model, const TrainerOptions& options, const Budgets& budgets,
         const Machine& machine)
      : model_(model),
        budgets_(budgets),
        machine_(machine),
        settings_(settings_to_try(options, budgets)),
        updates_(update_orders(options)),
        may_recompute_fewer_(options.recompute == Recompute::Auto && !options.recomputed_blocks),
        may_speculate_(options.update == UpdateOrder::Auto),
        may_choose_speculated_(!options.speculated_chunks && updates_after_norm(options)),
        may_choose_device_updates_(!options.device_updates),
        tried_(settings_.size()) {}

  Preparation run() {
    ThreadTeam team(num_usable_cores());
    team.for_each(std::ssize(settings_), [&](int64_t i) { try_setting(static_cast<size_t>(i)); });
    for (const Tried& tried : tried_) {
      if (tried.failed) std::rethrow_exception(tried.failed);
    }
    if (tried_[0].refused) std::rethrow_exception(tried_[0].refused);
    if (contenders_.empty()) refuse();
    std::ranges::sort(contenders_, comes_first);
    contenders_.resize(std::min(contenders_.size(), kMostRefined));
    team.for_each(std::ssize(contenders_),
                  [&](int64_t i) { refine(contenders_[static_cast<size_t>(i)]); });
    std::ranges::sort(contenders_, comes_first);
    return take(contenders_[0]);
  }

 private:
  /// What became of a setting.
  struct Tried {
    std::exception_ptr refused, failed;
    std::vector<Candidate> candidates;
    std::string too_large_at_home;  ///< of the row that needs the least there
    size_t least_at_home = SIZE_MAX;
    /// With as much on the device as can be, and too large for home even so: not planned yet. At
    /// home they take no less than their candidates say.
    std::vector<Contender> leaner;
    std::shared_ptr<const Preparation> too_large_for_device;
  };

  void try_setting(size_t setting) {
    Tried& tried = tried_[setting];
    try {
      consider(setting, tried);
    } catch (const ConfigError&) {
      // A model may use values in a way that only the simplest setting allows.
      tried = {};
      tried.refused = std::current_exception();
    } catch (...) {
      tried.failed = std::current_exception();
    }
  }

  void consider(size_t setting, Tried& tried) {
    const auto ground = run_dry(settings_[setting]);
    if (ground->num_blocks < ground->smallest_blocks) tried.too_large_for_device = ground;
    for (const UpdateOrder update : updates_) {
      Contender c{.ground = ground, .options = ground->options, .setting = setting};
      c.options.update = update;
      c.row = tried.candidates.size();
      c.candidate = describe(c);
      if (!tried.too_large_for_device) {
        plan_at_all(c, tried);
      }
      tried.candidates.push_back(c.candidate);
      if (c.candidate.why_not.empty()) keep(std::move(c));
    }
  }

  /// What home has no room for may live on the device: as much as can, or about as little as must.
  void plan_at_all(Contender& c, Tried& tried) const {
    plan_at_home(c, tried);
    const size_t room = budgets_.host_memory.value_or(SIZE_MAX), needed = c.candidate.host_bytes;
    const uint32_t most = most_device_updates(*c.ground);
    if (needed <= room || !may_choose_device_updates_ || most == 0) return;
    const size_t spared = most * home_bytes_of_chunk(*c.ground->layout);
    Contender leaner{.ground = c.ground, .options = c.options, .candidate = describe(c)};
    leaner.options.device_updates = most;
    leaner.candidate.host_bytes = needed - std::min(needed, spared);
    if (leaner.candidate.host_bytes > room) return tried.leaner.push_back(std::move(leaner));
    leaner.row = c.row;
    leaner.setting = c.setting;
    c = std::move(leaner);
    plan_at_home(c, tried);
    if (!c.candidate.why_not.empty()) return;
    const double share =
        static_cast<double>(needed - room) / static_cast<double>(needed - c.candidate.host_bytes);
    try_instead(c, [&](TrainerOptions& options) {
      options.device_updates = static_cast<uint32_t>(std::ceil(share * most));
    });
  }

  /// Logs are made in what is spare at home: with less, fewer chunks are speculated on.
  void plan_at_home(Contender& c, Tried& tried) const {
    const bool may_choose = may_choose_speculated_ && c.options.update == UpdateOrder::Speculate;
    for (uint32_t num = c.ground->layout->num_chunks();; num /= 2) {
      if (may_choose) c.options.speculated_chunks = num;
      c.plan = plan_step(*c.ground, c.options);
      Tried unused;
      judge(c, may_choose && num > 0 ? unused : tried);
      if (c.candidate.why_not.empty() || !may_choose || num == 0) return;
      c.candidate = describe(c);
    }
  }

  /// One after the other: nobody promised that a model can be run by several threads.
  std::shared_ptr<const Preparation> run_dry(const TrainerOptions& setting) {
    std::lock_guard lock(model_mutex_);
    return std::make_shared<const Preparation>(prepare_ground(model_, setting, budgets_));
  }

  /// What is known without a plan.
  static Candidate describe(const Contender& c) {
    const Preparation& ground = *c.ground;
    Candidate candidate{.order = ground.options.micro_batch_order,
                        .recompute = ground.options.recompute,
                        .activations = ground.options.activations,
                        .update = c.options.update,
                        .flops = ground.flops,
                        .smallest_device_bytes = ground.smallest_device_bytes};
    if (ground.num_blocks < ground.smallest_blocks) {
      candidate.why_not =
          fmt::format("needs {} on the device", format_bytes(ground.smallest_device_bytes));
    }
    return candidate;
  }

  void judge(Contender& contender, Tried& tried) const {
    const Preparation& ground = *contender.ground;
    const Plan& plan = contender.plan;
    Candidate& c = contender.candidate;
    const Ledger ledger = ledger_with(ground, plan);
    c.device_bytes = ledger.total(Tier::Device);
    const size_t home = c.host_bytes = ledger.total(Tier::Host);
    const auto refuse = [&](std::string why_not, std::string text) {
      c.why_not = std::move(why_not);
      if (home >= tried.least_at_home) return;
      tried.least_at_home = home;
      tried.too_large_at_home = std::move(text);
    };
    if (budgets_.host_memory && home > *budgets_.host_memory) {
      refuse(fmt::format("needs {} at home", format_bytes(home)),
             too_large_for_host(ledger, *budgets_.host_memory));
    } else if (budgets_.total_memory && home + c.device_bytes > *budgets_.total_memory) {
      refuse(fmt::format("needs {} in all", format_bytes(home + c.device_bytes)),
             too_large_together(ground, ledger, *budgets_.total_memory));
    }
    if (!c.why_not.empty()) return;
    c.update = contender.options.update;
    c.recomputed_blocks =
        std::min(ground.num_model_blocks, ground.options.recomputed_blocks.value_or(UINT32_MAX));
    c.carried_share = contender.options.carried_share.value_or(kCarriedShare);
    c.num_device_updates = static_cast<uint32_t>(plan.device_updates.size());
    c.num_held = static_cast<uint32_t>(plan.held_at_end.size()) - c.num_device_updates;
    c.num_speculated = static_cast<uint32_t>(plan.speculated.size());
    c.moved_bytes = plan.loaded_bytes + plan.stored_bytes;
    c.seconds = simulate(plan, ground.trace, *ground.layout, machine_).seconds;
    c.bound = lower_bound(ground.trace, *ground.layout, plan, machine_,
                          updates_after_norm(ground.options));
  }

  void keep(Contender contender) {
    std::lock_guard lock(contenders_mutex_);
    least_s_ = std::min(least_s_, contender.candidate.seconds);
    contenders_.push_back(std::move(contender));
    std::erase_if(contenders_,
                  [&](const Contender& c) { return c.candidate.seconds > kNear * least_s_; });
  }

  /// What is left open when the settings are chosen. The fewest recomputed blocks are not always
  /// the best once hope hides the updates that they left no time for, or are the best only then.
  void refine(Contender& c) {
    if (!may_recompute_fewer_ || c.options.recompute == Recompute::None) return refine_rest(c);
    const bool may_hope = may_speculate_on(c);
    Contender fewer = c, hopeful = c;
    const bool helps = recompute_fewer(fewer);
    if (!helps || may_hope) refine_rest(c);
    if (helps) refine_instead(c, std::move(fewer));
    if (!may_hope || hopeful.options.update == UpdateOrder::Speculate) return;
    speculate_on(hopeful, hopeful.ground->layout->num_chunks());
    const bool hopes = hopeful.options.update == UpdateOrder::Speculate;
    if (hopes && recompute_fewer(hopeful)) refine_instead(c, std::move(hopeful));
  }
  void refine_instead(Contender& c, Contender other) {
    refine_rest(other);
    if (is_better(other.candidate, c.candidate)) c = std::move(other);
  }

  /// Nothing makes a step faster than its kernels.
  bool may_win(const Contender& c) const {
    return c.candidate.bound.compute_s <= least_s_ * (1 + kEqualSeconds);
  }

  /// Only steps that do not wait for their norm hold weights that home updates, or have a share of
  /// updates to carry.
  void refine_rest(Contender& c) {
    if (!may_win(c)) return;
    const TrainerOptions told = c.options;
    if (may_choose_device_updates_) {
      const uint32_t most = most_device_updates(*c.ground);
      for (uint32_t num = most; num > most / 8; num /= 2) {
        try_instead(c, [&](TrainerOptions& options) { options.device_updates = num; });
      }
    }
    if (may_speculate_on(c)) speculate(c);
    if (updates_after_norm(told)) return;
    // Blocks that no moment needs at once may hold weights: more of them, or fewer.
    const uint32_t most = c.ground->num_blocks - c.ground->smallest_blocks;
    if (!told.held_chunks) {
      for (uint32_t num = most; num > most / 8; num /= 2) {
        try_instead(c, [&](TrainerOptions& options) { options.held_chunks = num; });
      }
    }
    // Those whose updates are carried are not held.
    if (!told.carried_share && told.update != UpdateOrder::Wait) {
      for (const double share : kCarriedShares) {
        try_instead(c, [&](TrainerOptions& options) { options.carried_share = share; });
      }
    }
  }

  bool may_speculate_on(const Contender& c) const {
    const UpdateOrder told = c.options.update;
    return may_choose_speculated_ &&
           (told == UpdateOrder::Speculate || (may_speculate_ && told != UpdateOrder::Wait));
  }

  /// On as many chunks as is fastest: what the next forward hides need not be done in hope.
  void speculate(Contender& c) const {
    const UpdateOrder told = c.options.update;
    const uint32_t most = c.ground->layout->num_chunks();
    if (told != UpdateOrder::Speculate) speculate_on(c, most);  // as where it is told
    for (uint32_t step = (most + 1) / 2; step > most / 16; step /= 2) {
      const auto now = static_cast<uint32_t>(c.plan.speculated.size());
      speculate_on(c, now + step);
      speculate_on(c, now - std::min(now, step));
    }
  }
  void speculate_on(Contender& c, uint32_t num) const {
    if (num == 0 || num > c.ground->layout->num_chunks()) return;
    try_instead(c, [&](TrainerOptions& options) {
      options.update = UpdateOrder::Speculate;
      options.speculated_chunks = num;
    });
  }

  /// The fewest that fit and are faster, by halves; false: none.
  bool recompute_fewer(Contender& c) {
    const auto all = c.ground;
    uint32_t too_few = 0, enough = c.ground->num_model_blocks;
    for (int i = 0; i < kHalvings && too_few + 1 < enough; ++i) {
      const uint32_t num = (too_few + enough) / 2;
      TrainerOptions options = c.options;
      options.recomputed_blocks = num;
      Contender fewer{.ground = run_dry(options), .options = options, .candidate = c.candidate};
      const bool fits = fewer.ground->num_blocks >= fewer.ground->smallest_blocks;
      (fits && replaces(std::move(fewer), c) ? enough : too_few) = num;
    }
    return c.ground != all;
  }

  template <class Change>
  void try_instead(Contender& c, const Change& change) const {
    Contender other{.ground = c.ground, .options = c.options, .candidate = c.candidate};
    change(other.options);
    replaces(std::move(other), c);
  }

  /// Is it better? Then it is the contender from now on.
  bool replaces(Contender other, Contender& c) const {
    other.plan = plan_step(*other.ground, other.options);
    other.candidate.flops = other.ground->flops;
    Tried unused;
    judge(other, unused);
    if (!other.candidate.why_not.empty() || !is_better(other.candidate, c.candidate)) return false;
    other.setting = c.setting;
    other.row = c.row;
    c = std::move(other);
    return true;
  }

  Preparation take(Contender& best) {
    Preparation prepared = *best.ground;
    prepared.options = best.options;
    complete(prepared, std::move(best.plan));
    for (const Contender& c : contenders_) tried_[c.setting].candidates[c.row] = c.candidate;
    for (size_t i = 0; i < tried_.size(); ++i) {
      if (i == best.setting) prepared.chosen = prepared.candidates.size() + best.row;
      for (const Candidate& c : tried_[i].candidates) {
        prepared.smallest_device_bytes =
            std::min(prepared.smallest_device_bytes, c.smallest_device_bytes);
        prepared.candidates.push_back(c);
      }
    }
    return prepared;
  }

  /// Of what is too large for home in any case only the least counts.
  void plan_leaner() {
    std::vector<Contender> all;
    for (Tried& tried : tried_) std::ranges::move(tried.leaner, std::back_inserter(all));
    std::ranges::sort(all, {}, [](const Contender& c) { return c.candidate.host_bytes; });
    Tried& least = *std::ranges::min_element(tried_, {}, &Tried::least_at_home);
    for (Contender& c : all) {
      if (c.candidate.host_bytes >= least.least_at_home) return;
      plan_at_home(c, least);
    }
  }

  [[noreturn]] void refuse() {
    plan_leaner();
    const auto least = std::ranges::min_element(tried_, {}, &Tried::least_at_home);
    if (!least->too_large_at_home.empty()) {
      if (least->least_at_home <= budgets_.host_memory.value_or(SIZE_MAX)) {
        throw PlanError(least->too_large_at_home);  // together with the device
      }
      throw HomeTooSmall(least->too_large_at_home, least->least_at_home);
    }
    const Preparation* nearest = nullptr;
    for (const Tried& tried : tried_) {
      const Preparation* const ground = tried.too_large_for_device.get();
      const bool nearer =
          ground != nullptr &&
          (nearest == nullptr || ground->smallest_device_bytes < nearest->smallest_device_bytes);
      if (nearer) nearest = ground;
    }
    throw_too_large_for_device(*nearest, budgets_.device_memory.value_or(0));
  }

  const Model& model_;
  const Budgets& budgets_;
  const Machine& machine_;
  const std::vector<TrainerOptions> settings_;
  const std::vector<UpdateOrder> updates_;
  const bool may_recompute_fewer_, may_speculate_;
  const bool may_choose_speculated_, may_choose_device_updates_;
  std::vector<Tried> tried_;  // by setting
  std::mutex model_mutex_, contenders_mutex_;
  std::vector<Contender> contenders_;  // those near the fastest
  double least_s_ = std::numeric_limits<double>::infinity();
};

}  // namespace

Preparation choose(const Model& model, const TrainerOptions& options, const Budgets& budgets,
                   const Machine& machine) {
  return Choice(model, options, budgets, machine).run();
}

}  // namespace ebb
