// Writes a safetensors file. The constructor gets all tensors; their content is written afterwards,
// in any order, in parts of any size, from any thread. The file appears either complete or not at
// all (io/new_file.h).
//
// The tensors are sorted in the file as the official library sorts them: by type, the last
// StoredType first, and then by name. So the same tensors always result in the same file.
//
// Several processes may write one file together (FileUse): each constructs the writer with the same
// tensors, and the one that has created the file finishes it.
//
// Thread-safety: write_*() may be called from any thread for different elements; finish() may be
// called after all of these calls have returned. Errors: IoError; ConfigError if two tensors have
// the same name, or if write_floats() would round a finite value to infinity.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "io/new_file.h"
#include "io/stored_tensor.h"

namespace ebb {

class SafetensorsWriter {
 public:
  SafetensorsWriter(const std::string& path, std::vector<TensorSpec> tensors,
                    std::map<std::string, std::string> metadata = {{"format", "pt"}},
                    FileUse use = FileUse::Create);

  /// Writes bytes [first, first + bytes.size()) of a tensor, as they are stored. `tensor`: the
  /// index of the tensor in the vector that the constructor got. REQUIRES: these bytes exist.
  void write_bytes(size_t tensor, uint64_t first, std::span<const std::byte> bytes);
  /// Writes elements [first, first + values.size()), rounded to nearest (ties to even) to the type
  /// of the tensor. Infinities and NaNs are written. REQUIRES: these elements exist; the type is
  /// F32, BF16 or F16.
  void write_floats(size_t tensor, uint64_t first, std::span<const float> values);
  /// As NewFile::sync().
  void sync(const std::function<void()>& progress) { file_->sync(progress); }
  /// So many bytes of tensors this object has written.
  uint64_t written_bytes() const { return written_bytes_; }
  /// Syncs the file and renames it to its final name. REQUIRES: called once; every byte was written
  /// once; other processes have written `by_others` bytes and synced them. Throws LogicError if the
  /// number of bytes that all have written is not that of all tensors.
  void finish(uint64_t by_others = 0);

 private:
  std::string path_;
  std::vector<TensorSpec> tensors_;
  std::vector<uint64_t> offsets_;  // in the file, of each tensor
  uint64_t data_bytes_ = 0;
  std::atomic<uint64_t> written_bytes_ = 0;
  std::optional<NewFile> file_;
};

}  // namespace ebb
