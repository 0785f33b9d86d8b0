// Writes the state of a trainer to a file (io/state_file.h), and reads it into another trainer,
// which continues with the same bits. The two trainers may have different budgets, chunk sizes,
// threads and schedules.
//
//   write_state(trainer.lock_state(), "state.ebb");
//   read_state(another, "state.ebb");
//
// Also writes the weights of a trainer as a Hugging Face folder. One thread at a time.
//
// Errors: those of InputFile and NewFile; FormatError if the file is damaged or belongs to another
// model.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "device/dtype.h"
#include "model_zoo/architecture.h"
#include "scheduler/run/state_reader.h"
#include "scheduler/run/trainer.h"

namespace ebb {

/// An upper bound of the size of the file that write_state() writes without `numbers`.
uint64_t state_file_bytes(const Layout& layout);

/// Releases the state lock of each parameter as soon as the parameter is written, so another thread
/// may continue the training. The file appears either complete or not at all. `numbers` of the run
/// are stored in the header of the file (io/state_file.h) and are not read by read_state().
void write_state(StateReader reader, const std::string& path,
                 const std::map<std::string, uint64_t>& numbers = {});

/// REQUIRES: after an exception the trainer is not used any more.
void read_state(Trainer& trainer, const std::string& path);

/// Writes a Hugging Face folder to the existing folder `to`: the weights in this type, config.json,
/// and copies of the tokenizer and generation files of the folder `from` (empty: none). If `type`
/// is the type that the device computes with, the weights are written unchanged; otherwise the
/// masters are rounded to `type`. All files are synced. `parameters` are those of the model.
void write_weights(const StateReader& reader, const ModelConfig& config,
                   const Parameters& parameters, DType type, const std::string& from,
                   const std::string& to);

}  // namespace ebb
