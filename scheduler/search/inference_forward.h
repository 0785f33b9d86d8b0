// What a dry run and a real run of a pass have in common.
#pragma once

#include <vector>

#include "autograd/tape.h"
#include "scheduler/search/inference_preparation.h"

namespace ebb {

inline size_t padded_bytes(const Shape& shape, DType type) {
  return padded_bytes(static_cast<size_t>(shape.num_elements()) * size_of(type));
}

/// Where a pass's losses and logits go, from `home` on; null where it has none.
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

/// REQUIRES: the tape is of a device whose compute stream is idle or in order.
inline void run_forward(Tape& tape, const ForwardSpec& forward, std::span<const Tensor> inputs,
                        const TapeResults& results, Tensor loss_total) {
  tape.begin_micro_batch({.training = false, .results = results}, loss_total, Write::Store, 0);
  forward.model->forward(tape, inputs);
  tape.end_micro_batch();
}

}  // namespace ebb
