#include "scheduler/plan/validation_gradients.h"

#include <algorithm>

namespace ebb::validation {

Gradients::Gradients(const Plan& plan, const Layout& layout, const PlanOptions& options,
                     Memory& memory, Report& report)
    : plan_(plan),
      layout_(layout),
      options_(options),
      memory_(memory),
      report_(report),
      gradients_(layout.num_chunks()),
      buffers_(plan.gradient_buffers) {
  expect_deferred();
  memory_.expect_residents(plan_.resident_at_start);
  expect_device_updates();
  for (const uint32_t c : options_.device_chunks) memory_.leave_home({Space::Weights, c});
}

uint32_t Gradients::num_parts(uint32_t c) const {
  const uint32_t parts = layout_.gradient_chunks_per_chunk();
  return std::min(parts, layout_.num_chunks(Space::Gradients) - c * parts);
}

void Gradients::expect_contribution(uint32_t c) {
  ++gradients_[c].num_contributions;
  ++gradients_[c].contributions_left;
}

void Gradients::contribute(uint32_t c) {
  if (gradients_[c].contributions_left > 0) --gradients_[c].contributions_left;
}

void Gradients::round(uint32_t c) {
  Gradient& g = gradients_[c];
  if (g.num_contributions == 0) report_.complain("parameter chunk {} has no gradient", c);
  if (g.contributions_left > 0) {
    report_.complain("parameter chunk {} lacks {} contributions", c, g.contributions_left);
  }
  if (++g.num_rounds > 1) report_.complain("parameter chunk {} is rounded again", c);
  last_round_ = g.round = report_.at();
}

void Gradients::fill_slot(uint32_t c, uint32_t index) {
  last_gradient_store_ = report_.at();
  if (++gradients_[c].num_stores > num_parts(c)) {
    report_.complain("the gradient of parameter chunk {} is stored again", c);
  }
  if (index >= buffers_.size()) {
    return report_.complain("gradient buffer {} of {}", index, buffers_.size());
  }
  GradientBuffer& buffer = buffers_[index];
  if (buffer.owner != c || buffer.update != kNone) {
    if (buffer.owner != kNone && buffer.update == kNone) {
      report_.complain("gradient buffer {} holds parameter chunk {}, which is not updated yet",
                       index, buffer.owner);
    }
    memory_.require_after(buffer.update, "reads gradient buffer {}", index);
    buffer = {.owner = c};
  }
  ++buffer.num_parts;
  buffer.last_store = report_.at();
}

void Gradients::norm() {
  if (norm_ != kNone) report_.complain("the norm is made again");
  norm_ = report_.at();
  memory_.require_after(last_round_, "rounds a gradient");
  memory_.require_after(last_gradient_store_, "stores a gradient");
}

void Gradients::partials(uint32_t c) {
  last_gradient_store_ = report_.at();
  if (!gradients_[c].stays) report_.complain("the gradient of parameter chunk {} is stored", c);
  if (gradients_[c].round == kNone)
    report_.complain("the gradient of parameter chunk {} is not rounded", c);
  memory_.require_after(gradients_[c].round, "rounds the gradient of parameter chunk {}", c);
  ++gradients_[c].num_stores;
}

void Gradients::update(const Op& op) {
  const uint32_t c = op.chunk.index;
  Gradient& g = gradients_[c];
  if (++(op.deferred ? g.num_deferred_updates : g.num_updates) > 1) {
    report_.complain("parameter chunk {} is updated again", c);
  }
  if (options_.update_after_norm && !op.deferred) {
    if (norm_ == kNone) report_.complain("parameter chunk {} is updated before the norm", c);
    memory_.require_after(norm_, "makes the norm");
  }
  if (op.stream == StreamKind::Compute) return update_on_device(c);
  update_at_home(op);
}

void Gradients::update_on_device(uint32_t c) {
  if (!gradients_[c].stays) report_.complain("the device has no state of parameter chunk {}", c);
  memory_.read(Space::Gradients, c * layout_.chunk_elements(), layout_.chunk_elements(c));
  memory_.update_here({Space::Weights, c});
}

void Gradients::update_at_home(const Op& op) {
  const uint32_t c = op.chunk.index;
  if (gradients_[c].stays)
    report_.complain("the state of parameter chunk {} is not in host memory", c);
  memory_.update_home(op);
  if (op.gradient_buffer >= buffers_.size()) {
    return report_.complain("gradient buffer {} of {}", op.gradient_buffer, buffers_.size());
  }
  GradientBuffer& buffer = buffers_[op.gradient_buffer];
  if (buffer.owner != c || buffer.update != kNone || buffer.num_parts != num_parts(c)) {
    report_.complain("gradient buffer {} does not hold the gradient of parameter chunk {}",
                     op.gradient_buffer, c);
  }
  memory_.require_after(buffer.last_store, "fills gradient buffer {}", op.gradient_buffer);
  buffer.update = report_.at();
}

/// The gradient stays in its buffer for the deferred update.
void Gradients::speculate(const Op& op) {
  const uint32_t c = op.chunk.index;
  ++gradients_[c].num_speculations;
  if (norm_ != kNone) report_.complain("parameter chunk {} is speculated on after the norm", c);
  memory_.speculate(op.chunk);
  if (op.gradient_buffer >= buffers_.size()) {
    return report_.complain("gradient buffer {} of {}", op.gradient_buffer, buffers_.size());
  }
  const GradientBuffer& buffer = buffers_[op.gradient_buffer];
  if (buffer.owner != c || buffer.update != kNone || buffer.num_parts != num_parts(c)) {
    report_.complain("gradient buffer {} does not hold the gradient of parameter chunk {}",
                     op.gradient_buffer, c);
  }
  memory_.require_after(buffer.last_store, "fills gradient buffer {}", op.gradient_buffer);
}

void Gradients::check_speculated() {
  for (uint32_t c = 0; c < gradients_.size(); ++c) {
    const bool said = std::ranges::binary_search(plan_.speculated, c);
    if (gradients_[c].num_speculations != (said ? 1 : 0)) {
      report_.complain("speculates {} times on parameter chunk {}", gradients_[c].num_speculations,
                       c);
    }
    const bool deferred = std::ranges::binary_search(plan_.deferred, c, {}, &DeferredUpdate::chunk);
    if (said && !(deferred && options_.update_after_norm)) {
      report_.complain("speculates on parameter chunk {}, whose update does not wait", c);
    }
  }
}

// ---- Deferred updates

/// A step begins with what the step before left behind.
void Gradients::expect_deferred() {
  if (!options_.defer_updates && !plan_.deferred.empty()) {
    report_.complain("carries {} updates into the next step", plan_.deferred.size());
  }
  for (const DeferredUpdate& left : plan_.deferred) {
    if (!exists(left)) {
      report_.complain("defers the update of parameter chunk {}, gradient buffer {}", left.chunk,
                       left.gradient_buffer);
      continue;
    }
    memory_.expect_deferred_update({Space::Weights, left.chunk});
    buffers_[left.gradient_buffer] = {.owner = left.chunk, .num_parts = num_parts(left.chunk)};
  }
}

/// Their weights must be resident, because their other planes are on the device.
void Gradients::expect_device_updates() {
  for (const uint32_t c : plan_.device_updates) {
    if (c >= gradients_.size()) {
      report_.complain("updates parameter chunk {} on the device", c);
      continue;
    }
    gradients_[c].stays = true;
    memory_.leave_home({Space::Weights, c});
  }
}

void Gradients::check_deferred() {
  std::vector<bool> deferred(gradients_.size(), false);
  for (const DeferredUpdate& left : plan_.deferred) {
    if (!exists(left)) continue;
    Gradient& g = gradients_[left.chunk];
    if (g.num_deferred_updates == 0) {
      report_.complain("the deferred update of parameter chunk {} is not made", left.chunk);
    }
    if (g.num_updates++ > 0) {
      report_.complain("parameter chunk {} is updated, and its update is deferred", left.chunk);
    }
    const GradientBuffer& buffer = buffers_[left.gradient_buffer];
    if (buffer.owner != left.chunk || buffer.update != kNone ||
        buffer.num_parts != num_parts(left.chunk)) {
      report_.complain("ends without the gradient of parameter chunk {} in buffer {}", left.chunk,
                       left.gradient_buffer);
    }
    deferred[left.chunk] = true;
  }
  for (uint32_t c = 0; c < gradients_.size(); ++c) {
    if (gradients_[c].num_deferred_updates == 0 || deferred[c]) continue;
    report_.complain("makes an update of parameter chunk {} that no step left over", c);
  }
}

void Gradients::check_end() {
  check_deferred();
  check_speculated();
  if (!options_.update) return;
  for (uint32_t c = 0; c < gradients_.size(); ++c) {
    const Gradient& g = gradients_[c];
    if (g.num_contributions == 0) continue;
    if (g.num_rounds == 0) report_.complain("parameter chunk {} is never rounded", c);
    if (g.num_stores < (g.stays ? 1 : num_parts(c))) {
      report_.complain("the gradient of parameter chunk {} is not stored", c);
    }
    if (g.num_updates == 0) report_.complain("parameter chunk {} is never updated", c);
  }
  if (norm_ == kNone) return report_.complain("has no norm");
  for (uint32_t op : {last_round_, last_gradient_store_}) {
    if (op != kNone && op > norm_) report_.complain("op {} comes after the norm, op {}", op, norm_);
  }
}

}  // namespace ebb::validation
