// Writes an array to a .npy file (version 1.0 of NumPy's format, little-endian, row-major). The
// constructor allocates the whole file on the disk, and commit() gives the file its name
// (io/new_file.h). Without commit() no file appears.
//
// Thread-safety: write() may be called from any thread for different elements. If the path is a
// device or a FIFO, one thread must write all elements in order. Errors: IoError.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "io/new_file.h"

namespace ebb {

template <class T>  // float or double
class NpyFile {
 public:
  /// Writes the header. `shape`: the size of each dimension; empty for a single element. REQUIRES:
  /// no size is negative.
  NpyFile(const std::string& path, const std::vector<int64_t>& shape);
  /// Writes elements [first, first + values.size()) of the row-major order. REQUIRES: these
  /// elements exist.
  void write(uint64_t first, std::span<const T> values);
  /// Elements that were not written are 0; this is not an error. REQUIRES: called once, after all
  /// calls of write() have returned.
  void commit() { file_.commit(); }

 private:
  std::string header_;
  NewFile file_;
};

extern template class NpyFile<float>;
extern template class NpyFile<double>;

}  // namespace ebb
