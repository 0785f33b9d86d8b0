#include "scheduler/plan/validation_gradients.h"

#include <algorithm>
#include <vector>

namespace ebb::validation {

Gradients::Gradients(const Plan& plan, const Layout& layout, const PlanOptions& options,
                     Memory& memory, Report& report)
    : plan_(plan),
      layout_(layout),
      options_(options),
      memory_(memory),
      report_(report),
      gradients_(layout.num_chunks()),
      buffers_(plan.gradient_buffers + layout.num_chunks()) {
  expect_deferred();
  memory_.expect_residents(plan_.chunks);
  // What is stored on the device is not in host memory.
  const std::vector<ChunkRecord>& stored = options_.update ? plan_.chunks : options_.chunks_of_step;
  for (ChunkIndex c{0}; c < stored.size(); ++c) {
    if (stored[c].is_on_device()) memory_.leave_home({Space::Weights, c});
  }
}

uint32_t Gradients::num_parts(ChunkIndex c) const {
  const uint32_t parts = layout_.gradient_chunks_per_chunk();
  return std::min(parts, layout_.num_chunks(Space::Gradients) - c * parts);
}

BufferIndex Gradients::buffer_of(ChunkIndex c, BufferIndex named) const {
  if (plan_.chunks[c].is_on_owner()) {
    return named == kNone ? BufferIndex(plan_.gradient_buffers + c) : BufferIndex(kNone);
  }
  return named < plan_.gradient_buffers ? named : BufferIndex(kNone);
}

void Gradients::expect_contribution(ChunkIndex c) {
  ++gradients_[c].num_contributions;
  ++gradients_[c].contributions_left;
}

void Gradients::contribute(ChunkIndex c) {
  if (gradients_[c].contributions_left > 0) --gradients_[c].contributions_left;
}

void Gradients::round(ChunkIndex c) {
  Gradient& g = gradients_[c];
  if (g.num_contributions == 0) report_.complain("parameter chunk {} has no gradient", c);
  if (g.contributions_left > 0) {
    report_.complain("parameter chunk {} lacks {} contributions", c, g.contributions_left);
  }
  if (++g.num_rounds > 1) report_.complain("parameter chunk {} is rounded again", c);
  last_round_ = g.round = report_.at();
}

void Gradients::add(ChunkIndex c, BufferIndex buffer) {
  round(c);
  for (uint32_t part = 0; part < num_parts(c); ++part) fill_buffer(c, buffer);
}

void Gradients::fill_buffer(ChunkIndex c, BufferIndex index) {
  last_gradient_store_ = report_.at();
  if (++gradients_[c].num_stores > num_parts(c)) {
    report_.complain("the gradient of parameter chunk {} is stored again", c);
  }
  const BufferIndex at = buffer_of(c, index);
  if (at == kNone) {
    return report_.complain("gradient buffer {} of {}", index, plan_.gradient_buffers);
  }
  GradientBuffer& buffer = buffers_[at];
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

void Gradients::partials(ChunkIndex c) {
  last_gradient_store_ = report_.at();
  if (!stays(c)) report_.complain("the gradient of parameter chunk {} is stored", c);
  if (gradients_[c].round == kNone)
    report_.complain("the gradient of parameter chunk {} is not rounded", c);
  memory_.require_after(gradients_[c].round, "rounds the gradient of parameter chunk {}", c);
  ++gradients_[c].num_stores;
}

void Gradients::update(const Op& op) {
  const ChunkIndex c(op.chunk.index);
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

void Gradients::update_on_device(ChunkIndex c) {
  if (!stays(c)) report_.complain("the device has no state of parameter chunk {}", c);
  memory_.read(Space::Gradients, c * layout_.chunk_elements(), layout_.chunk_elements(c));
  memory_.update_here({Space::Weights, c});
}

void Gradients::update_at_home(const Op& op) {
  const ChunkIndex c(op.chunk.index);
  if (stays(c)) report_.complain("the state of parameter chunk {} is not in host memory", c);
  // A delayed update writes a copy of the weights that this step does not read.
  if (!plan_.chunks[c].is_delayed()) memory_.update_home(op);
  const BufferIndex at = buffer_of(c, op.gradient_buffer);
  if (at == kNone) {
    return report_.complain("gradient buffer {} of {}", op.gradient_buffer, plan_.gradient_buffers);
  }
  if (!holds(at, c)) {
    report_.complain("gradient buffer {} does not hold the gradient of parameter chunk {}",
                     op.gradient_buffer, c);
  }
  if (op.gradient_buffer != plan_.chunks[c].gradient_buffer) {
    report_.complain("gradient buffer {} is not that of the record of parameter chunk {}",
                     op.gradient_buffer, c);
  }
  GradientBuffer& buffer = buffers_[at];
  memory_.require_after(buffer.last_store, "fills gradient buffer {}", op.gradient_buffer);
  buffer.update = report_.at();
}

/// The gradient stays in its buffer for the deferred update.
void Gradients::speculate(const Op& op) {
  const ChunkIndex c(op.chunk.index);
  ++gradients_[c].num_speculations;
  if (norm_ != kNone) report_.complain("parameter chunk {} is speculated on after the norm", c);
  memory_.speculate(op.chunk);
  const BufferIndex at = buffer_of(c, op.gradient_buffer);
  if (at == kNone) {
    return report_.complain("gradient buffer {} of {}", op.gradient_buffer, plan_.gradient_buffers);
  }
  if (!holds(at, c)) {
    report_.complain("gradient buffer {} does not hold the gradient of parameter chunk {}",
                     op.gradient_buffer, c);
  }
  memory_.require_after(buffers_[at].last_store, "fills gradient buffer {}", op.gradient_buffer);
}

void Gradients::check_speculated() {
  for (ChunkIndex c{0}; c < gradients_.size(); ++c) {
    const bool said = plan_.chunks[c].has_undo_log();
    if (gradients_[c].num_speculations != (said ? 1 : 0)) {
      report_.complain("speculates {} times on parameter chunk {}", gradients_[c].num_speculations,
                       c);
    }
    if (said && !options_.update_after_norm) {
      report_.complain("speculates on parameter chunk {}, whose update does not wait", c);
    }
  }
}

// ---- Deferred updates

/// Does the buffer hold the whole gradient of the chunk, for an update that is not made yet?
bool Gradients::holds(BufferIndex buffer, ChunkIndex c) const {
  const GradientBuffer& b = buffers_[buffer];
  return b.owner == c && b.update == kNone && b.num_parts == num_parts(c);
}

/// A step begins with what the step before left behind.
void Gradients::expect_deferred() {
  for (ChunkIndex c{0}; c < plan_.chunks.size(); ++c) {
    const ChunkRecord& chunk = plan_.chunks[c];
    if (chunk.is_trained() && chunk.is_delayed() != options_.delayed_updates) {
      report_.complain("the record of parameter chunk {} is wrong about delayed updates", c);
    }
    if (chunk.is_delayed() && (chunk.tier != Tier::Host || chunk.begins_on_device())) {
      report_.complain("delays the update of parameter chunk {}, which is on a device", c);
    }
    if (!chunk.defers_update()) continue;
    if (options_.schedule.update == UpdateOrder::Wait) {
      report_.complain("defers the update of parameter chunk {}", c);
    }
    const BufferIndex at = buffer_of(c, chunk.gradient_buffer);
    if (at == kNone) {
      report_.complain("defers the update of parameter chunk {}, gradient buffer {}", c,
                       chunk.gradient_buffer);
      continue;
    }
    if (!chunk.is_delayed()) memory_.expect_deferred_update({Space::Weights, c});
    buffers_[at] = {.owner = c, .num_parts = num_parts(c)};
  }
}

void Gradients::check_deferred() {
  for (ChunkIndex c{0}; c < gradients_.size(); ++c) {
    Gradient& g = gradients_[c];
    if (!plan_.chunks[c].defers_update()) {
      if (g.num_deferred_updates == 0) continue;
      report_.complain("makes an update of parameter chunk {} that no step left over", c);
      continue;
    }
    if (g.num_deferred_updates == 0) {
      report_.complain("the deferred update of parameter chunk {} is not made", c);
    }
    if (g.num_updates++ > 0) {
      report_.complain("parameter chunk {} is updated, and its update is deferred", c);
    }
    const BufferIndex buffer = plan_.chunks[c].gradient_buffer;
    const BufferIndex at = buffer_of(c, buffer);
    if (at == kNone || !holds(at, c)) {
      report_.complain("ends without the gradient of parameter chunk {} in buffer {}", c, buffer);
    }
  }
}

void Gradients::check_end() {
  check_deferred();
  check_speculated();
  if (!options_.update) return;
  for (ChunkIndex c{0}; c < gradients_.size(); ++c) {
    const Gradient& g = gradients_[c];
    if (plan_.chunks[c].is_trained() != (g.num_contributions > 0)) {
      report_.complain("the record of parameter chunk {} is wrong about its training", c);
    }
    if (g.num_contributions == 0 || !plan_.chunks[c].is_mine) continue;
    if (g.num_rounds == 0) report_.complain("parameter chunk {} is never rounded", c);
    if (g.num_stores < (stays(c) ? 1 : num_parts(c))) {
      report_.complain("the gradient of parameter chunk {} is not stored", c);
    }
    if (g.num_updates == 0) report_.complain("parameter chunk {} is never updated", c);
  }
  if (norm_ == kNone) return report_.complain("has no norm");
  for (const OpIndex op : {last_round_, last_gradient_store_}) {
    if (op != kNone && op > norm_) report_.complain("op {} comes after the norm, op {}", op, norm_);
  }
}

}  // namespace ebb::validation
