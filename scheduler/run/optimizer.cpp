#include "scheduler/run/optimizer.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "cpu_adam/gradient_norm.h"
#include "cpu_adam/undo.h"
#include "device/kernels.h"
#include "device/planes.h"
#include "scheduler/search/memory_sizes.h"

namespace ebb {
namespace {

bool all_finite(std::span<const double> values) {
  return std::all_of(values.begin(), values.end(), [](double x) { return std::isfinite(x); });
}

template <class T>
bool any_not_finite(const std::byte* data, uint64_t first, uint64_t count) {
  const T* values = reinterpret_cast<const T*>(data) + first;
  return std::any_of(values, values + count,
                     [](T x) { return !std::isfinite(static_cast<float>(x)); });
}

}  // namespace

Optimizer::Optimizer(Device& device, const Layout& layout, DeviceSpaces& spaces, Home& home,
                     const State& state, DeviceState& device_state, std::vector<bool> trained,
                     const Plan& plan, const TrainerOptions& options, Ranks* ranks,
                     Buffer pinned_sums)
    : kernels_(device.kernels()),
      layout_(layout),
      spaces_(spaces),
      home_(home),
      state_(state),
      trained_(std::move(trained)),
      chunks_(plan.chunks),
      num_deferred_(plan.count(&ChunkRecord::defers_update)),
      leaves_updates_(plan.count(&ChunkRecord::is_deferred) > 0),
      device_state_(device_state),
      max_grad_norm_(options.max_grad_norm),
      after_norm_(updates_after_norm(options)),
      is_scaled_(options.dtype == DType::F16),
      speculates_late_(options.speculates_late),
      device_partials_(
          device.allocate(MemoryKind::Device, partial_norm_bytes(layout), "partial norms")),
      team_(device.info().profile.num_threads),
      adam_(options.adam),
      counters_{.loss_scale = initial_loss_scale(options.dtype, options.initial_loss_scale)},
      emulates_compute_(device.info().emulate_compute.has_value()),
      ranks_(ranks),
      speculation_(device, layout, plan.chunks, options.max_grad_norm) {
  if (ranks_ != nullptr) messages_.emplace(*ranks_, layout_, home_, plan);
  if (plan.division.stores_groups()) {
    sums_.emplace(device, layout, home, trained_, plan, ranks, std::move(pinned_sums));
  }
  if (plan.division.splits_loads) part_slots_.emplace(device, layout, plan.division, *ranks);
  cut_runs();
  cut_updates();
  for (ChunkIndex c{0}; c < layout_.num_chunks(); ++c) device_state_.expect(updates_of(c));
  load_update_kernel();
  for (ChunkIndex c{0}; c < layout_.num_chunks(); ++c) {
    if (!chunks_[c].is_at_home()) continue;
    move_planes_to_nodes(team_, state_.home_planes(c), num_elements(c));
    if (!chunks_[c].is_delayed()) continue;
    Planes next{.weight_dtype = layout_.weight_type()};
    next[kWeightPlane] = home_.next_weights(c);
    move_planes_to_nodes(team_, next, num_elements(c));
  }
}

/// Makes an update that changes nothing, if a GPU of the owner makes updates: a GPU loads a kernel
/// at its first launch, and must not do that while a stream waits for a host thread. A deferred
/// update runs for the first time in the second step, when streams wait.
void Optimizer::load_update_kernel() {
  for (ChunkIndex c{0}; c < layout_.num_chunks(); ++c) {
    if (!chunks_[c].is_mine || !is_updated_by_gpu(c)) continue;
    device_state_.skip();
    return sums_->device_adder().update(device_state_, c, true);
  }
}

/// The rounding kernel adds the gradient sums of two uses. The sums of three or more uses are added
/// before (add_extra_uses).
bool Optimizer::has_second_sum(const Segment& s) const {
  return trained_[s.parameter] && layout_.parameter(s.parameter).num_uses == 2;
}

uint64_t Optimizer::second_sum(const Segment& s) const {
  if (!has_second_sum(s)) return kNoSum;
  return layout_.first_sum_element(s.parameter, 1) + s.first_element -
         layout_.first_element(s.parameter);
}

/// Cuts each chunk into runs. Adjacent trained parameters form one run, which one kernel rounds.
/// The gradient of gaps and of parameters that are not trained is set to zero.
void Optimizer::cut_runs() {
  for (ChunkIndex c{0}; c < layout_.num_chunks(); ++c) {
    first_run_.push_back(static_cast<uint32_t>(runs_.size()));
    uint64_t at = c * layout_.chunk_elements();
    const uint64_t end = at + layout_.chunk_elements(c);
    const auto append = [&](uint64_t first, uint64_t count, bool trained, uint64_t second_sum) {
      if (count == 0) return;
      const bool joins = runs_.size() > first_run_[c] && runs_.back().trained == trained &&
                         runs_.back().second_sum == kNoSum && second_sum == kNoSum;
      if (joins) {
        runs_.back().count += count;
      } else {
        runs_.push_back({first, count, trained, second_sum});
      }
    };
    for (const Segment& s : layout_.segments(c)) {
      append(at, s.first_element - at, false, kNoSum);
      append(s.first_element, s.num_elements, trained_[s.parameter], second_sum(s));
      at = s.first_element + s.num_elements;
    }
    append(at, end - at, false, kNoSum);
  }
  first_run_.push_back(static_cast<uint32_t>(runs_.size()));
}

void Optimizer::cut_updates() {
  for (ChunkIndex c{0}; c < layout_.num_chunks(); ++c) {
    first_update_.push_back(static_cast<uint32_t>(updates_.size()));
    for (const Segment& s : layout_.segments(c)) {
      if (!trained_[s.parameter]) continue;
      const ParameterInfo& info = layout_.parameter(s.parameter);
      updates_.push_back(
          {.first = static_cast<int64_t>(s.first_element - c * layout_.chunk_elements()),
           .count = static_cast<int64_t>(s.num_elements),
           .decay_factor = info.decay ? 1.0 : 0.0,
           .learning_rate_factor = info.learning_rate_factor});
    }
  }
  first_update_.push_back(static_cast<uint32_t>(updates_.size()));
}

std::span<double> Optimizer::partials_of(ChunkIndex chunk, std::span<double> all) const {
  const uint64_t pieces = layout_.chunk_elements() / kPieceElements;
  return all.subspan(chunk * pieces, pieces_of(layout_.chunk_elements(chunk)));
}

void Optimizer::add_extra_uses(Stream& compute, ChunkIndex chunk) {
  const auto sums = [&](uint64_t first, uint64_t count) {
    return Tensor{spaces_.base(Space::GradientSums) + first * sizeof(float),
                  DType::F32,
                  {static_cast<int64_t>(count)}};
  };
  for (const Segment& s : layout_.segments(chunk)) {
    if (!trained_[s.parameter] || has_second_sum(s)) continue;
    const uint64_t inside = s.first_element - layout_.first_element(s.parameter);
    for (uint32_t use = 1; use < layout_.parameter(s.parameter).num_uses; ++use) {
      const uint64_t extra = layout_.first_sum_element(s.parameter, use) + inside;
      kernels_.submit(
          compute, Accumulate{sums(s.first_element, s.num_elements), sums(extra, s.num_elements)});
    }
  }
}

void Optimizer::submit_round(Stream& compute, ChunkIndex chunk) {
  add_extra_uses(compute, chunk);
  const DType type = layout_.gradient_type();
  const auto gradient = [&](uint64_t first, uint64_t count) {
    return Tensor{spaces_.base(Space::Gradients) + first * size_of(type),
                  type,
                  {static_cast<int64_t>(count)}};
  };
  const std::span<double> all(reinterpret_cast<double*>(device_partials_.data()),
                              layout_.num_pieces());
  const std::span<double> of_chunk = partials_of(chunk, all);
  const Tensor partials{reinterpret_cast<std::byte*>(of_chunk.data()),
                        DType::F64,
                        {static_cast<int64_t>(of_chunk.size())}};
  const bool one_run = first_run_[chunk + 1] - first_run_[chunk] == 1;
  for (uint32_t r = first_run_[chunk]; r < first_run_[chunk + 1]; ++r) {
    const Run& run = runs_[r];
    const Tensor out = gradient(run.first, run.count);
    if (run.trained) {
      const auto sums = [&](uint64_t first) {
        if (first == kNoSum) return Tensor{};
        return Tensor{spaces_.base(Space::GradientSums) + first * sizeof(float), DType::F32,
                      out.shape};
      };
      kernels_.submit(compute, RoundGradient{out, sums(run.first), sums(run.second_sum),
                                             one_run ? partials : Tensor{}});
    } else {
      kernels_.submit(compute, FillZero{out});
    }
  }
  if (one_run && runs_[first_run_[chunk]].trained) return;
  kernels_.submit(compute, SquaredNormPieces{partials, gradient(chunk * layout_.chunk_elements(),
                                                                layout_.chunk_elements(chunk))});
}

void Optimizer::submit_partial_norms(Stream& store, ChunkIndex chunk) {
  const std::span<double> all(reinterpret_cast<double*>(device_partials_.data()),
                              layout_.num_pieces());
  const std::span<double> from = partials_of(chunk, all);
  store.copy(partials_of(chunk, home_.partial_norms()).data(), from.data(), from.size_bytes(),
             CopyKind::Store);
}

/// A reader of the state copies the chunk's planes from the device. So the kernels that change
/// these planes are submitted only when the reader has released the chunk.
void Optimizer::submit_update(Stream& compute, ChunkIndex chunk) {
  state_lock_.wait_for(chunk);
  const uint64_t first = chunk * layout_.chunk_elements();
  const std::byte* const gradient =
      spaces_.base(Space::Gradients) + first * size_of(layout_.gradient_type());
  device_state_.submit_update(compute, kernels_, chunk, gradient, after_norm_);
}

void Optimizer::begin_step(double learning_rate) {
  if (messages_) messages_->begin_step();
  learning_rate_ = learning_rate;
  before_ = {.counters = counters_, .has_deferred = has_deferred_};
  num_deferred_made_ = 0;
  is_touched_ = false;
  speculation_.begin_step(counters_.loss_scale.value);
  device_state_.decide(early_step(), false);
}

void Optimizer::end_step() {
  if (before_.has_deferred) home_.switch_weights();
}

void Optimizer::begin_flush() {
  if (messages_) messages_->begin_flush();
}

void Optimizer::end_flush() {
  if (has_deferred_) home_.switch_weights();
  has_deferred_ = false;
}

void Optimizer::stopped(std::string_view error) noexcept {
  if (ranks_ != nullptr) ranks_->fail(error);
}

const std::byte* Optimizer::owner_weights(ChunkIndex chunk) const {
  return device_state_.planes(chunk)[kWeightPlane];
}

void Optimizer::load_part(Stream& load, const Op& op, const std::byte* weights) {
  part_slots_->submit_load(
      load, op, op.from == Tier::Host ? weights : owner_weights(ChunkIndex(op.chunk.index)));
}

void Optimizer::gather(Stream& load, const Op& op, std::byte* to) {
  if (op.split != kNone) return part_slots_->submit_gather(load, op, to);
  load.copy(to, owner_weights(ChunkIndex(op.chunk.index)), layout_.used_bytes(op.chunk),
            CopyKind::Within);
}

void Optimizer::submit_sums(Stream& store, const Op& op, std::span<const std::byte> sums) {
  sums_->submit(store, op, sums);
}

void Optimizer::round_total(const Op& op) {
  const ChunkIndex chunk(op.chunk.index);
  const std::span<double> partials = partials_of(chunk, home_.partial_norms());
  sums_->round_total(team_, chunk, op.slot, gradient_of(chunk, op.gradient_buffer), partials);
  if (emulates_compute_) std::ranges::fill(partials, 0.0);
}

void Optimizer::add_groups(const Op& op) {
  const ChunkIndex chunk(op.chunk.index);
  if (op.slot != kNone) return sums_->add_to_running_sum(team_, chunk, op.slot);
  const std::span<double> partials = partials_of(chunk, home_.partial_norms());
  std::byte* const gradient = gradient_of(chunk, op.gradient_buffer);
  if (is_updated_by_gpu(chunk)) {
    sums_->device_adder().add_on_device(chunk, gradient, partials);
  } else {
    sums_->add(team_, chunk, gradient, partials);
  }
  if (emulates_compute_) std::ranges::fill(partials, 0.0);
}

/// The values for an update that runs before the norm of its step is known: the clip scale is 1.
AdamWStep Optimizer::early_step() const {
  return {.learning_rate = learning_rate_,
          .adam = adam_,
          .t = counters_.num_updates + 1,
          .gradient_scale = gradient_scale(1, counters_.loss_scale.value)};
}

float Optimizer::gradient_scale(float clip, uint32_t loss_scale) {
  return clip / static_cast<float>(loss_scale);
}

void Optimizer::norm() {
  const uint32_t loss_scale = counters_.loss_scale.value;
  grad_norm_ = norm_in_order(home_.partial_norms()) / loss_scale;
  skipped_ = !std::isfinite(grad_norm_);
  has_deferred_ = !skipped_ && leaves_updates_;
  if (skipped_) {
    speculation_.decide(false);
    undo_all();
    device_state_.skip();
    if (!after_norm_) check_unchecked_gradients();
    ++counters_.num_skipped;
    if (loss_scale > 1) {
      counters_.loss_scale = after_overflow(counters_.loss_scale);
    } else {
      ++counters_.num_skipped_in_a_row;
    }
    return;
  }
  counters_.num_skipped_in_a_row = 0;
  ++counters_.num_updates;
  if (is_scaled_) counters_.loss_scale = after_good_step(counters_.loss_scale);
  decided_ = {.learning_rate = learning_rate_, .adam = adam_, .t = counters_.num_updates};
  if (!after_norm_) return;
  const float clip = clip_scale(grad_norm_, max_grad_norm_);
  decided_.gradient_scale = gradient_scale(clip, loss_scale);
  speculation_.decide(clip == 1.0f);
  device_state_.decide(decided_, true);
}

/// The updates on the host of this rank in this step have checked their gradients.
void Optimizer::check_unchecked_gradients() const {
  for (ChunkIndex c{0}; c < chunks_.size(); ++c) {
    const bool is_unchecked = !chunks_[c].is_at_home() || chunks_[c].is_deferred();
    if (is_unchecked && !is_finite(c)) throw_not_a_number(bad_tensor_in(c));
  }
}

bool Optimizer::is_finite(ChunkIndex chunk) const {
  return all_finite(partials_of(chunk, home_.partial_norms()));
}

void Optimizer::throw_not_a_number(const std::string& tensor) const {
  throw NumericError(
      fmt::format("the gradient of {} is not a number; without clipping the step cannot be "
                  "skipped; try a lower `learning_rate`, or `max_grad_norm` 1",
                  tensor));
}

/// For a gradient that is not in the memory of this host and rank: returns the name of the first
/// tensor in a piece whose partial norm is not a number.
std::string Optimizer::bad_piece_in(ChunkIndex chunk) const {
  const std::span<const double> partials = partials_of(chunk, home_.partial_norms());
  for (const Segment& s : layout_.segments(chunk)) {
    const uint64_t first = s.first_element - chunk * layout_.chunk_elements();
    const uint64_t last = (first + s.num_elements - 1) / kPieceElements;
    for (uint64_t piece = first / kPieceElements; piece <= last; ++piece) {
      if (!std::isfinite(partials[piece])) return layout_.parameter(s.parameter).name;
    }
  }
  return {};
}

void Optimizer::update(ChunkIndex chunk, BufferIndex gradient_buffer, bool deferred) {
  if (deferred ? !has_deferred_ : after_norm_ && skipped_) return;
  const bool early = !deferred && !after_norm_;
  if (early && !is_finite(chunk)) throw_not_a_number(bad_tensor_in(chunk));
  if (deferred) {
    make_deferred(chunk, gradient_buffer);
    ++num_deferred_made_;
    return;
  }
  is_touched_ = true;
  make_update(chunk, gradient_buffer, early ? early_step() : decided_);
}

/// The device has the values of `step` already (DeviceState::decide).
void Optimizer::make_update(ChunkIndex chunk, BufferIndex gradient_buffer, const AdamWStep& step) {
  state_lock_.wait_for(chunk);
  if (is_updated_by_gpu(chunk)) {
    return sums_->device_adder().update(device_state_, chunk, after_norm_);
  }
  const Planes planes = planes_of(chunk, gradient_buffer);
  if (chunks_[chunk].is_delayed()) {
    return adamw_update(team_, planes, home_.next_weights(chunk), num_elements(chunk),
                        updates_of(chunk), step);
  }
  adamw_update(team_, planes, num_elements(chunk), updates_of(chunk), step);
}

/// On the host device, the memory of devices is host memory, so the host updates the chunk there.
bool Optimizer::is_updated_by_gpu(ChunkIndex chunk) const {
  return chunks_[chunk].is_on_owner() && sums_->adds_on_gpu();
}

void Optimizer::make_deferred(ChunkIndex chunk, BufferIndex gradient_buffer) {
  if (speculation_.take_committed(chunk)) return;
  UndoLog* const log = speculation_.log(chunk);
  if (log == nullptr || !log->is_full()) return make_update(chunk, gradient_buffer, decided_);
  state_lock_.wait_for(chunk);
  redo_update(team_, planes_of(chunk, gradient_buffer), num_elements(chunk), updates_of(chunk),
              *log, decided_);
}

std::byte* Optimizer::gradient_of(ChunkIndex chunk, BufferIndex gradient_buffer) const {
  return chunks_[chunk].is_on_owner() ? device_state_.gradient(chunk)
                                      : home_.gradient_buffer(gradient_buffer);
}

Planes Optimizer::planes_of(ChunkIndex chunk, BufferIndex gradient_buffer) const {
  Planes planes =
      chunks_[chunk].is_on_owner() ? device_state_.planes(chunk) : state_.home_planes(chunk);
  planes.gradient = gradient_of(chunk, gradient_buffer);
  return planes;
}

int64_t Optimizer::num_elements(ChunkIndex chunk) const {
  return static_cast<int64_t>(layout_.chunk_elements(chunk));
}

std::span<const AdamWRange> Optimizer::updates_of(ChunkIndex chunk) const {
  return std::span(updates_).subspan(first_update_[chunk],
                                     first_update_[chunk + 1] - first_update_[chunk]);
}

/// A chunk that a reader has locked gets no speculative update, because such an update would have
/// to wait. Once the norm can be known, deferred updates are faster: they need no undo log, and
/// they run in the order in which the next forward needs the chunks.
void Optimizer::speculate(ChunkIndex chunk, BufferIndex gradient_buffer, bool late) {
  if (late && !speculates_late_) return;
  if (!speculation_.may_commit(partials_of(chunk, home_.partial_norms()))) return;
  if (!state_lock_.is_free(chunk)) return;
  const bool fits = update_with_log(team_, planes_of(chunk, gradient_buffer), num_elements(chunk),
                                    updates_of(chunk), early_step(), *speculation_.log(chunk));
  speculation_.count(chunk, gradient_buffer, fits);
}

void Optimizer::undo_all() {
  for (const auto& [chunk, gradient_buffer] : speculation_.made()) {
    UndoLog& log = *speculation_.log(chunk);
    if (!log.is_full()) continue;  // undone already
    undo_update(team_, planes_of(chunk, gradient_buffer), num_elements(chunk), updates_of(chunk),
                log);
  }
}

bool Optimizer::roll_back() {
  const bool was_updated = !before_.has_deferred || num_deferred_made_ == num_deferred_;
  if (ranks_ != nullptr || !after_norm_ || is_touched_ || !was_updated || !device_state_.is_empty())
    return false;
  undo_all();
  end_step();
  counters_ = before_.counters;
  has_deferred_ = false;
  return true;
}

Cost Optimizer::update_cost(ChunkIndex chunk) const {
  const double elements = static_cast<double>(layout_.chunk_elements(chunk));
  const double bytes = update_bytes_per_parameter(layout_.weight_type(), layout_.gradient_type());
  return {.flops = 14 * elements, .bytes = bytes * elements, .name = "adamw"};
}

std::string Optimizer::bad_tensor_in(ChunkIndex chunk) const {
  if (!chunks_[chunk].is_at_home()) return bad_piece_in(chunk);
  const std::byte* const gradient = home_.gradient_buffer(chunks_[chunk].gradient_buffer);
  for (const Segment& s : layout_.segments(chunk)) {
    const uint64_t first = s.first_element - chunk * layout_.chunk_elements();
    const DType type = layout_.gradient_type();
    const bool bad = type == DType::F32   ? any_not_finite<float>(gradient, first, s.num_elements)
                     : type == DType::F16 ? any_not_finite<F16>(gradient, first, s.num_elements)
                                          : any_not_finite<BF16>(gradient, first, s.num_elements);
    if (bad) return layout_.parameter(s.parameter).name;
  }
  return {};
}

std::string Optimizer::first_bad_tensor() const {
  for (ChunkIndex c{0}; c < layout_.num_chunks(); ++c) {
    if (!chunks_[c].is_trained()) continue;
    const std::string name = bad_tensor_in(c);
    if (!name.empty()) return name;
  }
  return "(none: every gradient is finite, but their sum is not)";
}

}  // namespace ebb
