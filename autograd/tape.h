// The tape: runs a model's forward, remembers what its backward needs, and replays it in reverse.
//
// A primitive (autograd/primitives.h, or a user's own) opens a call, allocates its outputs in the
// arena, submits kernels, and records one closure that submits its backward. A model only composes
// primitives, so its backward follows from its forward.
//
// A layer is a part of the model. Where recomputation is on, the inner activations of a layer are
// freed after its forward and computed again before its backward. With `recompute` N > 1, only the
// input of the first of N consecutive layers is kept, and their forwards run again together (Chen
// et al., arXiv 1604.06174). Where `mark_idle` is on, the activations that a layer keeps are idle
// from its end until its backward: they may leave the device. An evaluation has no
// backward, so it frees the inner activations of a layer when the layer ends.
//
// A saved tensor is a view into the arena. It is valid until the backward of the primitive that
// made it has been submitted. One thread. The tape allocates host memory only in the first step.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "autograd/arena.h"
#include "autograd/hooks.h"
#include "device/device.h"
#include "device/inline_function.h"
#include "device/kernel_arguments.h"

namespace ebb {

struct AnyKernel;  // device/kernels.h
class Kernels;

/// A value on the tape. Inputs have id -1 and no gradient.
struct Variable {
  int32_t id = -1;
  Tensor value;
  bool has_gradient() const { return id >= 0; }
};

/// A parameter that a primitive uses, and whether its backward reads the weight again. A primitive
/// of several calls may use some rows of a parameter in each: every call after the first says
/// `continues`.
struct WeightUse {
  ParameterId parameter;
  bool read_in_backward = true;
  RowRange rows = {};
  bool continues = false;
};

class Tape;

/// What a backward closure works with.
class Backward {
 public:
  Backward(Tape& tape, std::span<const ParameterUse> uses) : tape_(tape), uses_(uses) {}
  Stream& stream() const;
  /// Submits one of Ebb's kernels to stream().
  void submit(const AnyKernel& kernel) const;
  /// The weight of the primitive's i-th WeightUse.
  Tensor weight(int i) const;
  /// Where to add the gradient of the i-th WeightUse.
  GradientTarget weight_gradient(int i) const;
  /// The gradient of an output. All its contributions are there.
  Tensor gradient(const Variable& output) const;
  /// As gradient(), but in memory that no other value shares, which the closure may change in place
  /// before it calls accumulate_gradient().
  Tensor own_gradient(const Variable& output) const;
  /// Where to write the gradient of an input. REQUIRES: input.has_gradient().
  GradientTarget input_gradient(const Variable& input) const;
  /// Memory that is valid until the end of this call.
  Tensor scratch(Shape shape, DType type) const;
  /// Adds the gradient of the output to that of the input. The first contribution is not copied:
  /// both then share the memory.
  void accumulate_gradient(const Variable& input, const Variable& output) const;

 private:
  Tape& tape_;
  std::span<const ParameterUse> uses_;
};

using BackwardFunction = InlineFunction<void(const Backward&), 448>;
using LayerFunction = InlineFunction<Variable(Tape&, Variable), 64>;

/// Called where another micro-batch may run: between the layers of a forward, between the calls of
/// a layer that keeps all its activations, and where a primitive of several calls says so.
class YieldPoint {
 public:
  virtual ~YieldPoint() = default;
  virtual void reached() = 0;
};

/// Host memory into which an evaluation stores results. A null tensor: the result is not requested.
struct TapeResults {
  Tensor losses = {};  ///< fp32, one for each row of the loss
  Tensor logits = {};  ///< (R, classes) of the logits' type: those of the last R rows of the loss
  bool loss = true;    ///< false: only the logits are requested, and other rows are not computed
};

struct TapeOptions {
  bool training = true;
  uint32_t recompute = 0;  ///< how many consecutive layers are recomputed together; 0: none
  /// Of every `recomputed_of` consecutive layers, the first `recomputed_layers` are recomputed: the
  /// activations of early layers would be kept the longest.
  uint32_t recomputed_layers = UINT32_MAX;
  uint32_t recomputed_of = UINT32_MAX;
  bool mark_idle = false;  ///< activations are marked as idle between forward and backward
  YieldPoint* yield_point = nullptr;
  Dropout dropout = {};      ///< probability, key and step; used in training only
  uint32_t micro_batch = 0;  ///< its number in the step
  TapeResults results = {};  ///< for an evaluation
};

class Tape {
 public:
  static constexpr int kMaxUses = 4;

  Tape(Device& device, Stream& compute, Hooks& hooks, Arena& arena);

  // For models and primitives.
  Stream& stream() { return compute_; }
  /// Submits one of Ebb's kernels to stream().
  void submit(const AnyKernel& kernel);
  bool training() const { return options_.training; }

  /// Opens a call. Its weights are readable through weight() until end_call().
  void begin_call(std::string_view name, std::initializer_list<WeightUse> uses);
  Tensor weight(int i);
  /// Where to add the gradient of the i-th use, in a call that begin_loss_call() opened.
  GradientTarget weight_gradient(int i);
  /// Opens a call that computes gradients in the forward (the loss). A call that computes only
  /// gradients belongs to the backward phase.
  void begin_loss_call(std::string_view name, std::initializer_list<WeightUse> uses,
                       Phase phase = Phase::Forward);
  /// Memory for a result of the open call. Its content is undefined.
  Variable output(Shape shape, DType type);
  /// A result in the memory of x. REQUIRES: x was made in the same layer, and nothing reads it any
  /// more, its own backward included.
  Variable output_in_place(const Variable& x);
  /// Memory that is valid until the end of the call.
  Tensor scratch(Shape shape, DType type);
  /// Closes the call, and records its backward if one will run.
  void end_call(const BackwardFunction& backward);
  void end_call();
  GradientTarget input_gradient(const Variable& variable);
  /// Frees an output that nothing reads any more. Without this it is kept until the backward.
  void release(const Variable& output) { release_value(values_[output.id]); }
  /// For primitives of several calls: other micro-batches may run before the next call.
  void between_calls() {
    if (!in_layer_ && phase_ != Phase::Backward) yield();
  }

  /// Runs body(*this, input) as a layer. `body` runs again after forward() has returned, so it
  /// captures values, and references only to objects that outlive the step. Where `mark_idle` is on
  /// or `recompute` > 1, nothing may use the input or an inner value of a layer after the layer has
  /// ended, and its result only until the end of the next layer; otherwise the dry run throws
  /// ConfigError.
  Variable layer(const LayerFunction& body, Variable input);
  /// x = layer(body, x), where nothing uses the old x after the layer. An evaluation frees it, so
  /// that only two values of consecutive layers exist at the same time.
  void next_layer(const LayerFunction& body, Variable& x);
  /// Layers of this micro-batch so far, without layers inside of layers.
  uint32_t num_layers() const { return num_layers_; }

  /// Adds a micro-batch's losses (N) fp32 to the step's total.
  void add_losses(Tensor losses);
  /// For primitives that compute a loss: the first of its `num_rows` rows that is requested.
  int64_t first_requested_row(int64_t num_rows) const;
  bool requests_loss() const { return options_.results.loss; }
  /// `logits` (n, classes) are rows [row, row + n) of a loss with `num_rows` rows, and classes from
  /// `first_class` on. Copies the requested part to TapeResults::logits. To be called before a
  /// kernel changes the logits.
  void store_logits(int64_t num_rows, int64_t row, int64_t first_class, Tensor logits);
  /// The factor of every loss gradient: the loss scale / the number of targets in the step.
  float loss_gradient_scale() const { return loss_gradient_scale_; }

  /// Dropout for one place of the model, on values of `num_samples` samples. Each place has a
  /// `site` of its own. Off in evaluation, and where the run has no dropout.
  Dropout dropout_at(uint32_t site, int64_t num_samples) const;

  // For the code that runs a micro-batch (autograd/micro_batches.h).
  void begin_micro_batch(const TapeOptions& options, Tensor loss_total, Write loss_write,
                         float loss_gradient_scale);
  /// Yield points cut the forward into this many segments.
  size_t num_segments() const { return segments_.size(); }
  void begin_backward();
  /// Runs the backward of all segments from `segment` on that did not run yet. An evaluation has
  /// none.
  void run_backward(size_t segment);
  /// Frees all values that are left.
  void end_micro_batch();

 private:
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
  struct Record {  // a primitive, a layer to recompute, or a place where idle values are needed
    BackwardFunction backward = {};
    LayerFunction layer = {};
    Variable layer_input = {}, layer_output = {};
    uint32_t num_layers_before = 0;  // that are recomputed together with this one
    bool marks_needed = false;       // the layer's input, and values from first_value to its output
    size_t first_use_log = 0;
    std::string_view name = {};
    std::array<ParameterUse, kMaxUses> uses = {};
    int num_uses = 0;
    int32_t first_value = 0;
  };

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
  /// Is the layer that began last recomputed? In the backward: true, for layers inside of it.
  bool recomputes() const {
    return options_.recompute > 0 &&
           (phase_ == Phase::Backward ||
            (num_layers_ - 1) % options_.recomputed_of < options_.recomputed_layers);
  }
  /// Are all activations of this layer kept on the device? Then all micro-batches may run one call
  /// before any runs the next: the call's weight, and in the backward its gradient, is then needed
  /// for the shortest time.
  bool keeps_layer() const { return options_.training && !recomputes() && !options_.mark_idle; }
  void yield();
  void mark_idle(Value& value);
  void mark_needed(Value& value);
  void mark_layer_idle(Variable input, Variable result, int32_t first);
  void mark_layer_needed(const Record& record);
  void check_usable(const Value& value) const;
  void run_backward_to(size_t num_records);
  void run_record(Record& record);
  void run_layers(size_t first, size_t count);

  Kernels& kernels_;
  Stream& compute_;
  Hooks& hooks_;
  Arena& arena_;
  TapeOptions options_;
  bool recording_ = false;
  bool in_layer_ = false;
  uint32_t num_layers_ = 0;
  bool in_new_segment_ = true;    // no call since the last yield point
  std::vector<size_t> segments_;  // where each begins in records_
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
    bool active = false;
  } open_;
  std::vector<std::pair<size_t, size_t>> scratch_;  // offset, bytes
};

}  // namespace ebb
