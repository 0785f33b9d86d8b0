// The tape: runs a model's forward, remembers what its backward needs, and runs the backward.
//
// A primitive (autograd/primitives.h, or a user's own) opens a call, allocates its outputs in the
// arena, and gives the tape two functions: one submits the kernels of the forward, the other those
// of the backward. The tape runs the first at once and records both, so it can run the backward and
// can also replay the forward of a single call. A model only composes primitives, so its backward
// follows from its forward.
//
// A layer is a part of the model. When its forward ends, the tape frees the values that are listed
// for it (autograd/recompute.h), and before its backward it runs the listed calls again. Or the
// whole layer runs again, maybe with consecutive layers: then only the input of the first is kept,
// and their forwards run again one after the other (Chen et al., arXiv 1604.06174). Where
// `mark_idle` is on, the activations that a layer keeps are idle from its end until its backward:
// they may leave the device. An evaluation has no backward, so it frees the inner activations of a
// layer when the layer ends.
//
// A value exists until the backward of the primitive that made it has been submitted. The tape
// skips the backward of a call if none of its outputs has a gradient. A broken contract
// throws LogicError where the tape can see it. One thread. The tape allocates host memory only in
// the first step.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "autograd/arena.h"
#include "autograd/functions.h"
#include "autograd/hooks.h"
#include "autograd/tape_options.h"
#include "device/device.h"
#include "device/kernel_arguments.h"

namespace ebb {

class Tape {
 public:
  static constexpr int kMaxUses = 4;  ///< of a call

  Tape(Device& device, Stream& compute, Hooks& hooks, Arena& arena);

  // For models and primitives.
  Stream& stream() { return compute_; }
  /// Submits one of Ebb's kernels to stream().
  void submit(const AnyKernel& kernel);
  /// Submits a kernel of your own, as OpenCall::submit(). For a loss call.
  template <IsOwnKernel Kernel>
  void submit(const Kernel& kernel) {
    submit_own(OwnKernel(kernel));
  }
  const Kernels& kernels() const { return kernels_; }
  /// The memory from which this tape allocates activations, their gradients and scratch space.
  /// Weights and inputs are elsewhere. Tapes of micro-batches that run together share it.
  const Arena& arena() const { return arena_; }
  bool training() const { return options_.training; }

  /// Opens a call. `name` has static storage. Until end_call(), weight(i) is the weight of the i-th
  /// use. REQUIRES: no other call is open.
  void begin_call(std::string_view name, std::initializer_list<WeightUse> uses);
  Tensor weight(int i);
  /// Where to store or add the gradient of the i-th use. REQUIRES: begin_loss_call() opened the
  /// call, and the tape trains.
  GradientTarget weight_gradient(int i);
  /// Opens a call that computes gradients before the backward begins (the loss). Its `phase` is
  /// Backward if it computes only gradients; an evaluation ignores `phase`. REQUIRES: as
  /// begin_call(), and no layer is being recomputed.
  void begin_loss_call(std::string_view name, std::initializer_list<WeightUse> uses,
                       Phase phase = Phase::Forward);
  /// Memory for a result of the open call. Its content is undefined.
  Variable output(Shape shape, DType type);
  /// A result in the memory of x, with the same shape and type. REQUIRES: x was made in the same
  /// layer, nothing reads the old content any more, not even the backward of the call that made x,
  /// and it is the first output of the call.
  Variable output_in_place(const Variable& x);
  /// Memory that is valid until the end of the call.
  Tensor scratch(Shape shape, DType type);
  /// Runs the forward of the open call and closes the call. Records both functions if a backward
  /// will run.
  void end_call(const ForwardFunction& forward, const BackwardFunction& backward);
  /// Closes a call whose kernels were submitted before. The tape records nothing: the call has no
  /// backward, or begin_loss_call() opened it.
  void end_call();
  /// Where to store or add the gradient of an input of the open call. For a loss call.
  GradientTarget input_gradient(const Variable& variable);
  /// Frees an output that nothing reads any more. Without release() the tape keeps it until the
  /// backward. REQUIRES, not checked: it is no input of the model.
  void release(const Variable& output) { release_value(values_[output.id]); }
  /// For primitives of several calls that each use a part of a large weight. Runs body(0) now, and
  /// leaves the stages 1 to count - 1. Each of them runs when all other micro-batches in vertical
  /// order have run the stage before it, but at the latest before the next call or layer that this
  /// micro-batch begins, or before its backward. Inside of a layer all stages run now. The tape
  /// keeps one copy of `body` for all stages. REQUIRES: count > 0; `body` does not call
  /// run_in_stages().
  void run_in_stages(uint32_t count, const StageFunction& body);

  /// Runs body(*this, input) as a layer and returns its result. REQUIRES: the result is a value
  /// that body made (checked where the layer is recomputed, and in an evaluation). If the layer is
  /// recomputed, `body` runs again after layer() has returned, so it captures values, and
  /// references only to objects that outlive the step. Nothing may use an inner value of a layer
  /// after the layer has ended, because recomputation and evaluation free the inner values. Where
  /// `mark_idle` is on or several layers run again together, nothing may use the input either, and
  /// the result only until the end of the next layer; otherwise the dry run throws ConfigError.
  Variable layer(const LayerFunction& body, Variable input);
  /// x = layer(body, x), where nothing uses the old x after the layer. An evaluation frees it, so
  /// that only two values of consecutive layers exist at the same time.
  void next_layer(const LayerFunction& body, Variable& x);
  /// Keeps a value that Model::begin() makes for all layers, such as a table of rotary positions.
  /// REQUIRES: begin() does not return the same value.
  void share(const Variable& value) { shared_.push_back(value); }
  /// The i-th value that begin() shared.
  const Variable& shared(size_t i) const;

  /// Adds losses (N) fp32 of the micro-batch to the step's total. Also stores them behind those of
  /// earlier calls in TapeResults::losses, if it is requested.
  void add_losses(Tensor losses);
  /// For primitives that compute a loss: the index of the first requested row of `num_rows` rows.
  int64_t first_requested_row(int64_t num_rows) const;
  bool requests_loss() const { return options_.results.loss; }
  /// `logits` are rows [row, row + n) of a loss with `num_rows` rows. `classes`: the rows of the
  /// weight to which the columns belong. Columns from classes.count on are padding. Copies the
  /// requested part to TapeResults::logits. REQUIRES: no kernel that changes the logits was
  /// submitted.
  void store_logits(int64_t num_rows, int64_t row, RowRange classes, Tensor logits);
  /// The factor of every loss gradient: the loss scale / the number of targets in the step.
  float loss_gradient_scale() const { return loss_gradient_scale_; }

  /// Dropout for one place of the model. `num_samples` is the number of samples in a micro-batch.
  /// Each place in each layer has a `site` of its own, at most 65535. The probability is 0 in an
  /// evaluation, and where the run has no dropout.
  Dropout dropout_at(uint32_t site, int64_t num_samples) const;

  // For the code that runs a micro-batch (autograd/micro_batches.h).
  /// Begins the first part of a forward. `loss_total` (1) fp64 is on the device, and receives the
  /// sum of the losses. REQUIRES: the micro-batch before it ended.
  void begin_micro_batch(const TapeOptions& options, Tensor loss_total, float loss_gradient_scale);
  /// Ends a part of the forward (begin(), a layer, or end() of a model) and begins the next one.
  /// The backward runs part by part, from the last part to the first.
  void begin_part() { parts_.push_back(records_.size()); }
  /// The number of parts whose backward has not run.
  size_t num_parts() const { return parts_.size(); }
  bool has_stage() const { return stages_.count > 0; }
  /// The layer whose forward or backward runs, for messages; -1: none.
  int32_t layer_at_work() const { return layer_at_work_; }
  /// Runs the next stage that run_in_stages() left. REQUIRES: has_stage().
  void run_stage();
  /// Runs all stages that are left. The next backward_of_part() is that of the last part.
  void begin_backward();
  /// Runs the backward of the last part that has not run yet. In an evaluation it only removes the
  /// part. REQUIRES, not checked: num_parts() > 0.
  void backward_of_part();
  /// Frees all values that are left.
  void end_micro_batch();

  // To recompute single calls (docs/decisions.md, "Replaying one call").
  /// The number of records so far, which is the index of the next record.
  size_t num_records() const { return records_.size(); }
  /// Frees the outputs of a recorded call. No call may read them until replay_call().
  void release_outputs(size_t record);
  /// Runs the forward of a recorded call again, as part of the backward phase. The outputs get the
  /// same bits, maybe at other addresses. REQUIRES: the outputs were freed, and the inputs were
  /// not. For a call that works in place, the call that made its input was replayed before.
  void replay_call(size_t record);

 private:
  friend class OpenCall;
  friend class Backward;
  struct Value {  // the memory of a Variable
    size_t offset = 0;
    size_t bytes = 0;
    bool live = false;
    bool idle = false;
    bool recomputed_later = false;  // freed; recomputation makes another value of it
    DType dtype = DType::F32;
    Shape shape;
    int32_t gradient = -1;
  };
  struct GradientMemory {
    size_t offset = 0;
    size_t bytes = 0;
    int32_t num_owners = 0;
  };
  enum class RecordKind : uint8_t {
    Call,
    WholeLayer,  ///< runs again
    RunAgain,    ///< here calls of a layer run again
    Needed,      ///< here the idle values of a layer are needed
  };
  struct Record {
    RecordKind kind = RecordKind::Call;
    ForwardFunction forward = {};
    BackwardFunction backward = {};
    LayerFunction layer = {};
    Variable layer_input = {}, layer_output = {};
    int32_t of_layer = -1;           // -1: it is in no layer
    uint32_t num_layers_before = 0;  // that are recomputed together with this one
    size_t first_record = 0;         // RunAgain: of the layer
    size_t first_use_log = 0;
    std::string_view name = {};
    std::array<ParameterUse, kMaxUses> uses = {};
    int num_uses = 0;
    int32_t first_value = 0;
    int32_t num_values = 0;    // outputs of the call
    int32_t in_place_of = -1;  // the value whose memory the first output takes
  };
  struct Stages {
    StageFunction body = {};
    uint32_t next = 0, count = 0;
  };

  void submit_own(const OwnKernel& kernel);
  Tensor value(const Variable& variable) const;
  Tensor tensor_at(size_t offset, Shape shape, DType type) const;
  int32_t new_gradient(const Value& value);
  void release_gradient(int32_t index);
  void release_value(Value& value);
  void release_values(int32_t first);
  uint32_t next_use_index(const WeightUse& use);
  void open(std::string_view name, Phase phase, std::span<const WeightUse> uses,
            bool gradients_now);
  Variable layer(const LayerFunction& body, Variable input, bool ends_input);
  Variable run_as_layer(const LayerFunction& body, Variable input);
  void record_layer(const LayerFunction& body, Variable input, Variable result, size_t first_use);
  /// The lists of the layer that began last.
  const LayerRecompute& lists() const;
  /// Does the layer that began last run again as a whole? In the backward: true, for layers inside
  /// of it.
  bool runs_again() const { return phase_ == Phase::Backward || lists().whole; }
  void free_listed(Variable result, int32_t first_value, size_t first_record);
  void run_listed(const Record& record);
  void mark_idle(Value& value);
  void mark_needed(Value& value);
  void mark_layer_idle(Variable input, Variable result, int32_t first);
  void observe_use(int32_t id) const;
  void observe_outputs();
  void mark_layer_needed(const Record& record);
  void check_usable(const Value& value) const;
  void run_stages();
  void run_backward_to(size_t num_records);
  void run_record(Record& record);
  void run_layers(size_t first, size_t count);

  Kernels& kernels_;
  Stream& compute_;
  Hooks& hooks_;
  Arena& arena_;
  TapeOptions options_;
  bool recording_ = false;
  uint32_t num_layers_ = 0;
  int32_t layer_at_work_ = -1;
  std::vector<size_t> parts_;  // where each begins in records_
  Stages stages_;              // that are left of the last run_in_stages(); count 0: none
  std::vector<Variable> shared_;
  Phase phase_ = Phase::Forward;
  Tensor loss_total_;
  Write loss_write_ = Write::Store;
  float loss_gradient_scale_ = 0;
  int64_t num_losses_stored_ = 0;

  std::vector<Value> values_;
  std::vector<GradientMemory> gradients_;
  std::vector<int32_t> free_gradients_;
  std::vector<Record> records_;
  std::vector<uint32_t> uses_of_parameter_;  // so far in this micro-batch's forward
  std::vector<uint32_t> use_log_;            // the number of each use, in order of the forward
  size_t use_cursor_ = 0;                    // while a layer is recomputed: position in the log
  bool replaying_uses_ = false;

  struct Open {
    std::string_view name;
    std::array<ParameterUse, kMaxUses> uses;
    std::array<bool, kMaxUses> read_in_backward{};
    int num_uses = 0;
    int32_t first_value = 0;
    int32_t in_place_of = -1;
    bool active = false;

    std::span<const ParameterUse> all_uses() const {
      return std::span(uses).first(static_cast<size_t>(num_uses));
    }
  } open_;
  std::vector<std::pair<size_t, size_t>> scratch_;  // offset, bytes
};

}  // namespace ebb
