// Writes an array to a .npy file (version 1.0 of NumPy's format, little endian). The constructor
// allocates the whole file on the disk; commit() makes the file appear under its name.
//
// Thread-safety: write() may be called from any thread for different elements. Errors: IoError.
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
  NpyFile(const std::string& path, const std::vector<int64_t>& shape);
  /// Writes elements [first, first + values.size()), in row-major order. REQUIRES: these elements
  /// exist.
  void write(uint64_t first, std::span<const T> values);
  /// REQUIRES: called once, after all elements are written.
  void commit() { file_.commit(); }

 private:
  std::string header_;
  NewFile file_;
};

extern template class NpyFile<float>;
extern template class NpyFile<double>;

}  // namespace ebb
