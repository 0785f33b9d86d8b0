// The large files of a checkpoint, written by several ranks together: the weights as a Hugging Face
// folder, and the state (io/state_file.h). Their content is the same for any number of ranks.
//
// Rank 0 creates the files, and then the others join them. Each rank writes and syncs the bytes of
// its own chunks, and gives a summary of them to rank 0, which finishes the files. One rank alone
// does the same without the others.
//
// Thread-safety: one thread at a time. Errors: those of SafetensorsFolderWriter and
// StateFileWriter.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "io/safetensors_folder_writer.h"
#include "io/state_file.h"
#include "model_zoo/hugging_face_tensors.h"
#include "scheduler/run/owned_ranges.h"
#include "scheduler/run/state_reader.h"

namespace ebb {

/// Called again and again while files are written. What it throws ends the writing.
using WriteProgress = std::function<void()>;

// `owners`: the rank of the reader, and ranks that begin no step until the function returns.

/// Writes the planes of the chunks of `owners`, releases each parameter when its planes are
/// written, and ends the reader.
void write_planes(StateReader reader, const OwnerSet& owners, const WriteProgress& progress,
                  StateFileWriter& file);
/// Writes the weights of the chunks of `owners`, rounded to `type` as write_weights() does.
void write_tensors(const StateReader& reader, std::span<const MappedTensor> tensors, DType type,
                   const OwnerSet& owners, const WriteProgress& progress,
                   SafetensorsFolderWriter& files);

/// What all ranks write together. All give the same.
struct CheckpointFiles {
  std::vector<MappedTensor> tensors;  ///< map_tensors()
  DType weight_type;                  ///< in which weights are stored
  std::string state_file;             ///< its name in the folder; empty: only weights
};

/// The part of one rank.
class CheckpointPart {
 public:
  /// All ranks give the same arguments, but for `folder`, which exists, and `use`. `files` must
  /// outlive this object. `numbers` as in write_state().
  CheckpointPart(const std::string& folder, FileUse use, const CheckpointFiles& files,
                 const StateReader& reader, const std::map<std::string, uint64_t>& numbers);

  /// Writes the weights, then the planes, as the functions above; then syncs the files. REQUIRES:
  /// called once. No other rank writes the chunks of `owners`.
  void write(StateReader reader, const OwnerSet& owners, const WriteProgress& progress);
  /// What was written, with checksums: numbers for finish() of rank 0.
  std::vector<uint64_t> summary() const;
  /// Gives the files their final names, synced. `others`: the summaries of the other ranks. Throws
  /// LogicError if a byte of the state was not written, or written twice, or if not as many bytes
  /// of weights were written as there are. REQUIRES: this object has created the files.
  void finish(std::span<const std::vector<uint64_t>> others);

 private:
  const CheckpointFiles& files_;
  SafetensorsFolderWriter weights_;
  std::optional<StateFileWriter> state_;
};

}  // namespace ebb
