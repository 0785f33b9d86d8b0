// How one forward of an inference runs. The dry run and the real run use these functions.
#pragma once

#include <span>

#include "autograd/micro_batches.h"
#include "scheduler/search/inference_preparation.h"

namespace ebb {

/// Bytes of a tensor, rounded up to the alignment of the arena.
inline size_t padded_bytes(const Shape& shape, DType type) {
  return padded_bytes(static_cast<size_t>(shape.num_elements()) * size_of(type));
}

/// Where a forward stores its results in host memory: losses at `home`, then logits of type `type`.
/// A result that the forward does not have is a null tensor.
inline TapeResults results_of(const ForwardSpec& forward, DType type, std::byte* home) {
  TapeResults results{.loss = forward.loss};
  if (forward.num_losses > 0) results.losses = {home, DType::F32, {forward.num_losses}};
  if (forward.logits_rows > 0) {
    const size_t before =
        forward.num_losses > 0 ? padded_bytes({forward.num_losses}, DType::F32) : 0;
    results.logits = {home + before, type, {forward.logits_rows, forward.num_classes}};
  }
  return results;
}

/// Runs the forward of one micro-batch. `loss_total` (1) fp64 is overwritten with its loss.
inline void run_forward(MicroBatches& micro_batches, const ForwardSpec& forward,
                        std::span<const Tensor> inputs, const TapeResults& results,
                        Tensor loss_total) {
  micro_batches.run(
      *forward.model,
      {.tape = {.training = false, .results = results}, .inputs = inputs, .losses = loss_total});
}

}  // namespace ebb
