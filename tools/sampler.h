// Continues a prompt with the weights of a training run (--sample-steps), so that its user sees
// what the model has learned.
//
// The weights are copied to an inference on the host device, which exists only during a sample. So
// samples need no memory of a GPU, and host memory for the weights (2 bytes per parameter in bf16).
// A sample only makes the deferred or delayed updates earlier. So it changes no bit of the
// training, unless updates are delayed.
//
// One thread. Errors of the constructor: ConfigError if the model has no tokenizer or does not
// generate, or if the prompt is empty or too long; PlanError if the host memory is too small; those
// of TextProgram. sample() throws those of an inference and of TextProgram.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "scheduler/run/trainer.h"
#include "tools/token_text.h"
#include "tools/train_setup.h"

namespace ebb {

class Sampler {
 public:
  /// `setup` must outlive this object. REQUIRES: --sample-steps is given, and the run is planned.
  Sampler(const TrainOptions& options, const TrainSetup& setup);

  /// Every --sample-steps, and after the last step.
  bool due(uint64_t step) const;
  /// The host memory that a sample takes.
  size_t bytes() const { return bytes_; }
  /// The prompt and its continuation or answer, printable. The same step of the same run has the
  /// same text.
  std::string sample(Trainer& trainer, uint64_t step);

 private:
  const TrainSetup& setup_;
  const uint64_t interval_;
  const std::string prompt_;
  const bool is_message_;  // the prompt is a message, and the sample its answer
  TokenText text_;
  const std::vector<int32_t> ends_;
  std::vector<int32_t> tokens_;
  int64_t num_added_;
  size_t bytes_;
};

}  // namespace ebb
