// An error that a kernel finds in data on the device, for example an index outside its table.
//
// Each device has one record, in pinned memory. The first kernel that finds an error writes the
// record, with an atomic exchange of `kind`, and continues without reading outside its tensors. A
// host thread that synchronizes with a compute stream then calls check().
#pragma once

#include <cstdint>

namespace ebb {

struct DataError {
  enum Kind : int32_t { None, Token, Target, DocumentStart, Position };

  int32_t kind = None;
  int32_t padding = 0;
  int64_t row = 0;    ///< row of the tensor of indices
  int64_t value = 0;  ///< the index
  int64_t limit = 0;  ///< of rows, of classes, of tokens in a row, or the capacity of the cache

  /// Throws LogicError if a kernel found an error, and clears the record.
  void check();
};

}  // namespace ebb
