// The tape: runs a model's forward, remembers what its backward needs, and replays it in reverse.
//
// A primitive (autograd/primitives.h, or a user's own) opens a moment, takes its outputs from the
// arena, submits kernels, and records one closure that submits its backward. A model only composes
// primitives, so its backward follows from its forward. A block is a part of the model whose inner
// activations are forgotten after its forward and recomputed before its backward (where
// recomputation is on), or freed at its end (evaluation). With `recompute` N > 1, of N blocks that
// follow each other only the first one's input is kept, and their forwards run again together
// (Chen et al., arXiv 1604.06174). What is kept of a block rests from the end of the block that
// uses it last to its backward (where `rest` is on): it may then leave the device.
//
// What is saved lives until the backward of the primitive that made it has been submitted; tensors
// are views into the arena and must not be kept longer. One thread. Allocates only while its lists
// grow, in the first step.
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
#include "device/kernels.h"

namespace ebb {

/// A value on the tape. Inputs have id -1 and no gradient.
struct Variable {
  int32_t id = -1;
  Tensor value;
  bool has_gradient() const { return id >= 0; }
};

/// Which parameters a primitive uses, and whether its backward reads the weight again. A primitive
/// of several moments may use rows of a parameter in each: all after the first continue its use.
struct WeightUse {
  ParameterId parameter;
  bool read_in_backward = true;
  RowRange rows = {};
  bool continues = false;
};

class Tape;

/// What a recorded backward closure is given.
class Backward {
 public:
  Backward(Tape& tape, std::span<const ParameterUse> uses) : tape_(tape), uses_(uses) {}
  Kernels& kernels() const;
  Stream& stream() const;
  /// The weight of the primitive's i-th WeightUse.
  Tensor weight(int i) const;
  /// Where the gradient of the i-th WeightUse is summed.
  GradientTarget weight_gradient(int i) const;
  /// The finished gradient of an output.
  Tensor gradient(const Variable& output) const;
  /// The same, to be changed in place and then passed to an input: nobody else reads it.
  Tensor own_gradient(const Variable& output) const;
  /// Where to write the gradient of an input. REQUIRES: input.has_gradient().
  GradientTarget input_gradient(const Variable& input) const;
  /// Memory until the end of this moment.
  Tensor scratch(Shape shape, DType type) const;
  /// input's gradient += output's gradient, without a copy where it is the first.
  void accumulate_gradient(const Variable& input, const Variable& output) const;

 private:
  Tape& tape_;
  std::span<const ParameterUse> uses_;
};

using BackwardFunction = InlineFunction<void(const Backward&), 448>;
using LayerFunction = InlineFunction<Variable(Tape&, Variable), 64>;

/// Told where another micro-batch may take its turn: between the blocks of a forward, between the
/// moments of one that keeps all it makes, and where a primitive of several moments says so.
class YieldPoint {
 public:
  virtual ~YieldPoint() = default;
  virtual void reached() = 0;
};

/// What an evaluation sends home of what it computes: host memory that the device's copies reach.
/// Null: not wanted.
struct TapeResults {
  Tensor losses = {};  ///< fp32, of every row of the loss
  Tensor logits = {};  ///< (R, classes) of the logits' type: those of the last R rows of the loss
  bool loss = true;    ///< false: logits are all that is wanted, other rows have none
};

struct TapeOptions {
  bool training = true;
  uint32_t recompute = 0;                   ///< so many blocks at once; 0: all activations are kept
  uint32_t recomputed_layers = UINT32_MAX;  ///< the first so many: they would be kept the longest
  uint32_t recomputed_of = UINT32_MAX;      ///< of each so many in a row
  bool mark_idle = false;  ///< activations rest between their block's forward and backward
  YieldPoint* yield_point = nullptr;
  Dropout dropout = {};      ///< probability, key and step; in training alone
  uint32_t micro_batch = 0;  ///< of the step's
  TapeResults results = {};  ///< of an evaluation
};

class Tape {
 public:
  static constexpr int kMaxUses = 4;

  Tape(Device& device, Stream& compute, Hooks& hooks, Arena& arena);

  // For models and primitives.
  Kernels& kernels() { return kernels_; }
  Stream& stream() { return compute_; }
  bool training() const { return options_.training; }

  /// Opens a moment; the uses stay readable through weight() until end_call().
  void begin_call(std::string_view name, std::initializer_list<WeightUse> uses);
  Tensor weight(int i);
  /// For primitives that make gradients in their forward (the loss): the sum of the i-th use.
  GradientTarget weight_gradient(int i);
  /// As above, for a use announced with begin_loss_call. A moment of gradients alone belongs to
  /// the backward phase.
  void begin_loss_call(std::string_view name, std::initializer_list<WeightUse> uses,
                       Phase phase = Phase::Forward);
  /// Memory for a result of the open moment. Its content is undefined.
  Variable output(Shape shape, DType type);
  /// A result that takes the place of x, which nobody reads any more, its own backward included.
  /// REQUIRES: x was made in the same block.
  Variable output_in_place(const Variable& x);
  /// Memory until the end of the moment.
  Tensor scratch(Shape shape, DType type);
  /// Closes the moment and records its backward (dropped where no backward will run).
  void end_call(const BackwardFunction& backward);
  void end_call();
  GradientTarget input_gradient(const Variable& variable);
  /// Frees an output that nobody reads any more: otherwise it waits for the backward.
  void release(const Variable& output) { release_value(values_[output.id]); }
  /// For primitives of several moments: other micro-batches may run theirs before the next.
  void between_calls() {
    if (!in_layer_ && phase_ != Phase::Backward) yield();
  }

  /// Runs body(*this, input) as a block. `body` runs again after forward() has returned: capture
  /// values, and views of what outlives the step, never forward()'s locals by reference. What a
  /// block made or took is used by nothing behind the block that takes its result, where `rest` or
  /// `recompute` > 1 is on: ConfigError.
  Variable layer(const LayerFunction& body, Variable input);
  /// x = block(body, x), of a value that nothing behind the block uses: an evaluation frees it. Of
  /// blocks in a row only two values so exist at once.
  void next_layer(const LayerFunction& body, Variable& x);
  /// Layers so far in this micro-batch, without those inside others.
  uint32_t num_layers() const { return num_layers_; }

  /// Adds a micro-batch's losses (N) fp32 to the step's total.
  void add_losses(Tensor losses);
  /// For primitives that make a loss: the first of its `num_rows` rows that anybody asks for.
  int64_t first_wanted_row(int64_t num_rows) const;
  bool wants_loss() const { return options_.results.loss; }
  /// Logits (n, classes) of rows from `row` on and classes from `first_class` on, before anything
  /// changes them: what is wanted of them goes home.
  void show_logits(int64_t num_rows, int64_t row, int64_t first_class, Tensor logits);
  /// What every loss gradient is multiplied with: 1 / (targets in the step), times the loss scale.
  float loss_gradient_scale() const { return loss_gradient_scale_; }

  /// Of a place in the model, where no other has this number, on values of so many samples. Off
  /// where the run has no dropout, and in evaluation.
  Dropout dropout_at(uint32_t site, int64_t num_samples) const;

  // For whoever runs a micro-batch.
  void begin_micro_batch(const TapeOptions& options, Tensor loss_total, Write loss_write,
                         float loss_gradient_scale);
  /// The forward fell into this many segments, at its boundaries.
  size_t num_segments() const { return segments_.size(); }
  void begin_backward();
  /// The backward of this segment and all behind it that have not had theirs. Nothing in an
  /// evaluation.
  void run_backward(size_t segment);
  /// Frees what is left.
  void end_micro_batch();

 private:
  friend class Backward;
  struct Value {  // a Variable's memory
    size_t offset = 0;
    size_t bytes = 0;
    bool live = false;
    bool idle = false;
    bool forgotten = false;  // until it is recomputed as another
    DType dtype = DType::F32;
    Shape shape;
    int32_t gradient = -1;
  };
  struct GradientMemory {
    size_t offset = 0;
    size_t bytes = 0;
    int32_t num_owners = 0;
  };
  struct Record {  // a primitive, a block to recompute, or where values that rest wake
    BackwardFunction backward = {};
    LayerFunction layer = {};
    Variable layer_input = {}, layer_output = {};
    uint32_t num_layers_before = 0;  // that are recomputed with this one
    bool marks_needed = false;       // the block's input, and slots from first_value to its output
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
  /// Is this block, the latest that began, recomputed? Within one that runs again all are.
  bool recomputes() const {
    return options_.recompute > 0 &&
           (phase_ == Phase::Backward ||
            (num_layers_ - 1) % options_.recomputed_of < options_.recomputed_layers);
  }
  /// Is all that this block makes kept, where it is? Then other micro-batches may run each of its
  /// moments before the next: a weight is done with at once, and so is a gradient.
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
  bool in_new_segment_ = true;    // no moment since the last boundary
  std::vector<size_t> segments_;  // where each begins in records_
  Phase phase_ = Phase::Forward;
  Tensor loss_total_;
  Write loss_write_ = Write::Store;
  float loss_gradient_scale_ = 0;
  int64_t num_losses_shown_ = 0;

  std::vector<Value> values_;
  std::vector<GradientMemory> gradients_;
  std::vector<int32_t> free_gradients_;
  std::vector<Record> records_;
  std::vector<uint32_t> uses_of_parameter_;  // calls so far in this micro-batch's forward
  std::vector<uint32_t> use_log_;            // the use indices given out, in order
  size_t use_cursor_ = 0;                    // while a block is recomputed: where in the log
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
