// What a tape does with layers: it runs and records them, runs them again in the backward, and
// marks their values as idle.
#include "autograd/tape.h"
#include "device/errors.h"

namespace ebb {

const Variable& Tape::shared(size_t i) const {
  EBB_CHECK(i < shared_.size(), "the model's begin() shared fewer values");
  return shared_[i];
}

Variable Tape::layer(const LayerFunction& body, Variable input) {
  return layer(body, input, false);
}

void Tape::next_layer(const LayerFunction& body, Variable& x) { x = layer(body, x, true); }

Variable Tape::layer(const LayerFunction& body, Variable input, bool ends_input) {
  if (layer_at_work_ >= 0 || phase_ == Phase::Backward) return run_as_layer(body, input);
  run_stages();  // before the layer, whose values and uses are counted from here
  layer_at_work_ = static_cast<int32_t>(num_layers_++);
  const int32_t first = static_cast<int32_t>(values_.size());
  const size_t first_record = records_.size();
  if (options_.observer != nullptr) options_.observer->begin_layer(first);
  const Variable result = run_as_layer(body, input);
  if (options_.observer != nullptr) options_.observer->end_layer(result.id);
  if (recording_) free_listed(result, first, first_record);
  layer_at_work_ = -1;
  if (options_.mark_idle && recording_) mark_layer_idle(input, result, first);
  if (ends_input && !options_.training && input.has_gradient()) release(input);
  return result;
}

Variable Tape::run_as_layer(const LayerFunction& body, Variable input) {
  LayerFunction run = body;
  if (options_.training && !runs_again()) return run(*this, input);
  const bool was_recording = recording_;
  const int32_t first = static_cast<int32_t>(values_.size());
  const size_t first_use_log = replaying_uses_ ? use_cursor_ : use_log_.size();
  recording_ = false;
  Variable result = run(*this, input);
  recording_ = was_recording;
  EBB_CHECK(result.id >= first, "a layer must return a value that it made");
  const Value kept = values_[result.id];
  values_[result.id].live = false;
  release_values(first);
  values_.push_back(kept);
  result.id = first;
  if (recording_) record_layer(body, input, result, first_use_log);
  return result;
}

/// A layer that takes the result of the layer before it may be recomputed together with it. That
/// result is then freed.
void Tape::record_layer(const LayerFunction& body, Variable input, Variable result,
                        size_t first_use) {
  uint32_t num_before = 0;
  if (phase_ == Phase::Forward && !records_.empty() &&
      records_.back().kind == RecordKind::WholeLayer &&
      records_.back().layer_output.id == input.id && values_[input.id].gradient < 0) {
    num_before = (records_.back().num_layers_before + 1) % options_.layers_at_once;
  }
  if (num_before > 0) {
    release_value(values_[input.id]);
    values_[input.id].recomputed_later = true;
  }
  records_.push_back(Record{.kind = RecordKind::WholeLayer,
                            .layer = body,
                            .layer_input = input,
                            .layer_output = result,
                            .of_layer = layer_at_work_,
                            .num_layers_before = num_before,
                            .first_use_log = first_use,
                            .first_value = result.id});
}

// ---- Calls that run again: their values are freed at the end of the layer's forward

const LayerRecompute& Tape::lists() const {
  static const LayerRecompute kNothing;
  const size_t layer = num_layers_ - 1;
  return layer < options_.layers.size() ? options_.layers[layer] : kNothing;
}

void Tape::free_listed(Variable result, int32_t first_value, size_t first_record) {
  const LayerRecompute& of_layer = lists();
  for (const uint32_t value : of_layer.freed_values) release_value(values_[first_value + value]);
  if (of_layer.repeated_calls.empty()) return;
  records_.push_back(Record{.kind = RecordKind::RunAgain,
                            .layer_output = result,
                            .of_layer = layer_at_work_,
                            .first_record = first_record});
}

void Tape::run_listed(const Record& record) {
  if (values_[record.layer_output.id].gradient < 0) return;
  layer_at_work_ = record.of_layer;
  for (const uint32_t call : options_.layers[record.of_layer].repeated_calls) {
    replay_call(record.first_record + call);
  }
}

/// Runs consecutive recomputed layers forward again, and then backward. Their records stay in the
/// list until the caller removes them.
void Tape::run_layers(size_t first_record, size_t count) {
  const size_t last_record = first_record + count - 1;
  Value& output = values_[records_[last_record].layer_output.id];
  release_value(output);
  const int32_t gradient = std::exchange(output.gradient, -1);
  Variable x = records_[first_record].layer_input;
  if (x.has_gradient()) mark_needed(values_[x.id]);
  if (gradient < 0) return;
  const size_t num_records = records_.size();
  const int32_t first_value = static_cast<int32_t>(values_.size());
  const bool was_replaying = std::exchange(replaying_uses_, true);
  const size_t was_at = use_cursor_;
  recording_ = true;
  for (size_t i = first_record; i <= last_record; ++i) {
    use_cursor_ = records_[i].first_use_log;
    LayerFunction body = records_[i].layer;
    layer_at_work_ = records_[i].of_layer;
    x = body(*this, x);
  }
  recording_ = false;
  use_cursor_ = was_at;
  replaying_uses_ = was_replaying;
  values_[x.id].gradient = gradient;
  run_backward_to(num_records);
  release_values(first_value);
}

// ---- Idle values: from the end of the layer that used them last until their backward

void Tape::mark_idle(Value& value) {
  if (!value.live || value.idle) return;
  arena_.mark_idle(value.offset, value.bytes);
  value.idle = true;
}

void Tape::mark_needed(Value& value) {
  if (!value.idle) return;
  arena_.mark_needed(value.offset, value.bytes);
  value.idle = false;
}

/// Marks the layer's input and all values that the layer made, except for its result.
void Tape::mark_layer_idle(Variable input, Variable result, int32_t first) {
  if (input.has_gradient()) mark_idle(values_[input.id]);
  for (int32_t id = first; id < static_cast<int32_t>(values_.size()); ++id) {
    if (id != result.id) mark_idle(values_[id]);
  }
  if (runs_again()) return;  // run_layers() marks the input of a recomputed layer as needed
  records_.push_back(Record{.kind = RecordKind::Needed,
                            .layer_input = input,
                            .layer_output = {static_cast<int32_t>(values_.size()), {}},
                            .first_value = first});
}

void Tape::mark_layer_needed(const Record& record) {
  if (record.layer_input.has_gradient()) mark_needed(values_[record.layer_input.id]);
  for (int32_t id = record.first_value; id < record.layer_output.id; ++id) mark_needed(values_[id]);
}

}  // namespace ebb
