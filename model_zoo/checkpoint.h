// A trainer's state in a file (io/state_file.h), from which another one goes on with the same bits:
// whatever its budgets, chunk size, threads and schedule.
//
//   write_state(trainer.lock_state(), "state.ebb");
//   read_state(another, "state.ebb");
//
// And its weights as a Hugging Face folder, for everybody else.
//
// Errors: IoError; FormatError where the file is damaged or of another model.
#pragma once

#include <cstdint>
#include <string>

#include "device/dtype.h"
#include "model_zoo/architecture.h"
#include "scheduler/run/state_reader.h"
#include "scheduler/run/trainer.h"

namespace ebb {

/// Of the file that write_state() would write.
uint64_t state_file_bytes(const Layout& layout);

/// Gives back each parameter as soon as it is written: another thread may go on training. The file
/// appears whole or not at all.
void write_state(StateReader reader, const std::string& path);

/// After a throw the trainer must not be used.
void read_state(Trainer& trainer, const std::string& path);

/// A Hugging Face folder, in the existing folder `to`: the weights in this type, config.json, and
/// the tokenizer's and generation's files of the folder that the model came from (empty: none). Of
/// the type that the device computes with they are those that it computes with, else the masters,
/// rounded. Everything is synced. `parameters` are the model's.
void write_weights(const StateReader& reader, const ModelConfig& config,
                   const Parameters& parameters, DType type, const std::string& from,
                   const std::string& to);

}  // namespace ebb
