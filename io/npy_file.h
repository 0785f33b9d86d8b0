// An array in a .npy file (version 1.0 of NumPy's format, little endian), whose place on the disk
// is taken whole and whose name appears when it is complete.
//
// Thread-safety: write() of different elements from any threads. Errors: IoError.
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
  /// Elements [first, first + values.size()), in row-major order. REQUIRES: they exist.
  void write(uint64_t first, std::span<const T> values);
  /// REQUIRES: once, when all is written.
  void commit() { file_.commit(); }

 private:
  std::string header_;
  NewFile file_;
};

extern template class NpyFile<float>;
extern template class NpyFile<double>;

}  // namespace ebb
