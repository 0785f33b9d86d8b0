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
inline TapeResults results_of(const Pass& pass, DType type, std::byte* home) {
  TapeResults results{.loss = pass.loss};
  if (pass.num_losses > 0) results.losses = {home, DType::F32, {pass.num_losses}};
  if (pass.logits_rows > 0) {
    const size_t before = pass.num_losses > 0 ? padded_bytes({pass.num_losses}, DType::F32) : 0;
    results.logits = {home + before, type, {pass.logits_rows, pass.num_classes}};
  }
  return results;
}

/// REQUIRES: the tape is of a device whose compute stream is idle or in order.
inline void run_pass(Tape& tape, const Pass& pass, std::span<const Tensor> inputs,
                     const TapeResults& results, Tensor loss_total) {
  tape.begin_micro_batch({.training = false, .results = results}, loss_total, Write::Store, 0);
  pass.model->forward(tape, inputs);
  tape.end_micro_batch();
}

}  // namespace ebb
