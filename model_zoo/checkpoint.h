// Writes the state of a trainer to a file (io/state_file.h), and reads it into another trainer,
// which continues with the same bits. The two trainers may have different budgets, chunk sizes,
// threads and schedules.
//
//   write_state(trainer.lock_state(), "state.ebb");
//   read_state(another, "state.ebb");
//
// Also writes the weights of a trainer as a Hugging Face folder. With several ranks, each writes
// its own part of these files (CheckpointPart). One thread at a time.
//
// Errors: those of InputFile and NewFile; FormatError if the file is damaged, or if its model, its
// type of weights or its optimizer is not that of the trainer.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "device/dtype.h"
#include "model_zoo/architecture.h"
#include "scheduler/run/state_reader.h"
#include "scheduler/run/trainer.h"

namespace ebb {

/// An upper bound of the size, in bytes, of the file that write_state() writes if `numbers` is
/// empty.
uint64_t state_file_bytes(const Layout& layout);

/// Releases the state lock of each parameter as soon as the parameter is written, so another thread
/// may continue the training. The file appears either complete or not at all. `numbers` are values
/// of the caller, by name. They are stored in the header of the file (io/state_file.h), and
/// read_state() ignores them.
void write_state(StateReader reader, const std::string& path,
                 const std::map<std::string, uint64_t>& numbers = {});

/// Replaces the state of the trainer by that of the file. REQUIRES: after an exception the trainer
/// is not used any more.
void read_state(Trainer& trainer, const std::string& path);

/// Writes a Hugging Face folder to the existing folder `to`: the weights in `type`, config.json,
/// and copies of the tokenizer and generation files of the folder `from` (empty: none). If `type`
/// is the type that the device computes with, the weights are written unchanged; otherwise the
/// masters are rounded to `type`. All files are synced. `parameters` are those of the model. All
/// parameters stay locked until `reader` is destroyed.
void write_weights(const StateReader& reader, const ModelConfig& config,
                   const Parameters& parameters, DType type, const std::string& from,
                   const std::string& to);

}  // namespace ebb
