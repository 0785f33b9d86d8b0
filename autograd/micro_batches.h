// Runs micro-batches through a model, in one of two orders.
//
// Horizontal: each micro-batch runs forward and backward through the whole model before the next
// one begins. Few activations exist at a time, but every weight is loaded for every micro-batch.
// Vertical: all micro-batches run through one layer before any of them enters the next, forward and
// then backward. If the weights of a layer fit on the device, they are loaded once for the forward
// and once for the backward, whatever the number of micro-batches. The activations between the
// layers are kept for all of them. The gradients of one use of a parameter are added in the order
// of the micro-batches in both orders, so both give the same bits.
//
// Both are the same two loops: over the parts of a model (begin, each layer, end, and the stages
// that Tape::run_in_stages() leaves), and inside of it over the micro-batches that run together.
// These are all of them in vertical order, and a single one in horizontal order.
//
// One caller at a time. Nothing is allocated after the first step. Broken contracts throw
// LogicError. The message of a ShapeError begins with the part of the model: "layer 3: multiply:
// factors of one shape and type, not (8, 128) bf16 and (8, 64) bf16". The layer is the argument of
// Model::layer().
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "autograd/model.h"
#include "autograd/tape.h"

namespace ebb {

/// What one run is to compute.
struct MicroBatchesOptions {
  uint32_t count = 1;     ///< of micro-batches
  TapeOptions tape = {};  ///< run() sets the number of the micro-batch
  /// The number of the first one in the step. Dropout depends on it.
  uint32_t first = 0;
  std::span<const Tensor> inputs;  ///< those of the first micro-batch, then those of the next, ...
  Tensor losses;                   ///< (count) fp64 on the device: receives the sum of each one
  float loss_gradient_scale = 1;   ///< Tape::loss_gradient_scale()
};

class MicroBatches {
 public:
  /// Called with the index of a micro-batch, from 0, before each of its parts, by the thread of
  /// run().
  using OnMicroBatch = InlineFunction<void(uint32_t), 64>;

  /// `together` micro-batches run through a part of a model before the next part begins. Throws
  /// ConfigError for more than 4096, because each has a tape. All arguments must outlive this
  /// object.
  MicroBatches(Device& device, Stream& compute, Hooks& hooks, Arena& arena, uint32_t together);

  /// Submits the forward of all micro-batches and, in training, their backward, and does not wait
  /// for the work. REQUIRES: all micro-batches leave the same number of stages.
  void run(
      const Model& model, const MicroBatchesOptions& run,
      OnMicroBatch on_micro_batch = [](uint32_t) {});

 private:
  struct Running {  // a micro-batch
    std::unique_ptr<Tape> tape;
    uint32_t index = 0;
    std::span<const Tensor> inputs = {};
    Variable x = {};
  };

  /// Some micro-batches that run together.
  using Together = std::span<Running>;

  static void begin(const MicroBatchesOptions& run, uint32_t first, Together together);
  static void run_forward(const Model& model, Together together, OnMicroBatch& on_micro_batch);
  static void run_backward(Together together, OnMicroBatch& on_micro_batch);
  /// `name`: where work outside of layers comes from, for messages.
  template <class Part>
  static void for_each(std::string_view name, Together together, OnMicroBatch& on_micro_batch,
                       const Part& part);

  std::vector<Running> running_;
};

}  // namespace ebb
