// Saves, restores and changes the state of a trainer, in each way that ebb::Trainer offers.
#pragma once

#include <ebb/ebb.h>

#include <cstddef>
#include <future>
#include <string>
#include <string_view>
#include <vector>

/// Saves to a file in another thread, while the caller trains on. The file gets the state at the
/// time of this call. Before the trainer is destroyed, get() waits for the file and throws what
/// failed.
std::future<void> start_saving(ebb::Trainer& trainer, const std::string& path);

/// The largest absolute value of all masters, also found in another thread.
std::future<float> start_largest_master(ebb::Trainer& trainer);

/// The state in memory, for example to return to it. Each trainer of the same model continues from
/// it with the same bits, also one with another budget.
class Snapshot {
 public:
  explicit Snapshot(ebb::Trainer& trainer);
  void restore(ebb::Trainer& trainer) const;

 private:
  ebb::OptimizerCounters counters_;
  std::vector<std::vector<std::vector<std::byte>>> planes_;  // of each parameter
};

/// Copies the weights by name, and not the moments of the optimizer.
void copy_weights(ebb::Trainer& from, ebb::Trainer& to);
/// Multiplies a parameter, in parts that need little memory. Throws ConfigError if the model has no
/// such parameter.
void scale_weights(ebb::Trainer& trainer, const ebb::Model& model, std::string_view name,
                   float factor);
