#include "scheduler/run/step_agreement.h"

#include <fmt/format.h>
#include <xxhash.h>

#include <string>

namespace ebb {
namespace {

std::string options_text(const TrainerOptions& options) {
  const AdamW& adam = options.adam;
  return fmt::format("{} {} {} {} {} {} {} {} {} {}", adam.beta1, adam.beta2, adam.epsilon,
                     adam.weight_decay, options.max_grad_norm, options.initial_loss_scale,
                     options.max_skipped_steps, options.dropout, options.seed,
                     options.random_weights);
}

std::string layout_text(const Layout& layout) {
  std::string text = fmt::format("{} {} {}", layout.chunk_bytes(), name_of(layout.weight_type()),
                                 name_of(layout.gradient_type()));
  for (const ParameterId id : layout.call_order()) {
    text += fmt::format(" {} {} {}", id, layout.first_element(id), layout.num_elements(id));
  }
  return text;
}

/// Not the numbers of chunks: they depend on the share of the rank.
std::string schedule_text(const Schedule& schedule, uint32_t num_layers) {
  return fmt::format("{} {} {} {} {}", name_of(schedule.micro_batch_order),
                     name_of(schedule.recompute, num_layers), name_of(schedule.activations),
                     name_of(schedule.update), schedule.deferred_share) +
         (schedule.copies_weights ? " copies" : "");
}

/// When the weights of each chunk are updated, and so in which step they are sent; and whether its
/// planes are on the device of its owner.
std::string chunks_text(const std::vector<ChunkRecord>& chunks) {
  std::string text;
  for (const ChunkRecord& chunk : chunks) {
    text += !chunk.is_trained() ? '-' : chunk.is_delayed() ? 'n' : chunk.is_deferred() ? 'd' : 'u';
    if (chunk.is_on_owner()) text += 'o';
  }
  return text;
}

/// The blocks and the chunks of split loads, in their order: all ranks take part in each of them.
std::string split_loads_text(const Plan& plan) {
  if (!plan.division.splits_loads) return "";
  std::string text = fmt::format("{}", plan.num_blocks);
  for (const Op& op : plan.ops) {
    if (is_load_part(op)) text += fmt::format(" {}", op.chunk.index);
  }
  return text;
}

std::string_view work_of(const StepAnnouncement& rank) {
  return rank.evaluates != 0 ? "an evaluation before step" : "step";
}

}  // namespace

uint64_t hash_of_common_plan(const Preparation& prepared) {
  const Division& division = prepared.division;
  const std::string text = fmt::format(
      "{}; {}; {} {} {} {} {} {}; {}; {}; {}", options_text(prepared.options),
      layout_text(*prepared.layout), division.place.num_ranks, division.num_micro_batches,
      division.num_groups, division.sums_on_devices, division.chains_sums,
      name_of(division.sum_type), prepared.options.evaluation_batches,
      schedule_text(prepared.schedule, prepared.num_layers), chunks_text(prepared.plan.chunks),
      split_loads_text(prepared.plan));
  return XXH64(text.data(), text.size(), 0);
}

void check_same_work(std::span<const StepAnnouncement> ranks) {
  const StepAnnouncement& first = ranks[0];
  for (size_t r = 1; r < ranks.size(); ++r) {
    const StepAnnouncement& rank = ranks[r];
    if (rank.evaluates != first.evaluates || rank.step != first.step) {
      throw LogicError(fmt::format("rank {} begins {} {}, rank 0 begins {} {}", r, work_of(rank),
                                   rank.step, work_of(first), first.step));
    }
    if (rank.plan != first.plan) {
      throw LogicError(fmt::format(
          "rank {} has another plan than rank 0: the model, the options, the smallest budgets and "
          "the rates of the machine must be the same on all ranks",
          r));
    }
    if (rank.learning_rate != first.learning_rate) {
      throw LogicError(
          fmt::format("rank {} begins step {} with a learning rate of {}, rank 0 with {}", r,
                      rank.step, rank.learning_rate, first.learning_rate));
    }
  }
}

}  // namespace ebb
