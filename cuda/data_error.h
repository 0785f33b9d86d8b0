// What kernels found wrong with data that only the device sees: an index outside its table, say.
//
// One record a device, in pinned memory: the kernel that finds something first writes it, with an
// atomic exchange of `kind`, and goes on without a stray read. Whoever waits for a compute
// stream calls check() afterwards.
#pragma once

#include <cstdint>

namespace ebb {

struct DataError {
  enum Kind : int32_t { None, Token, Target, DocumentStart, Position };

  int32_t kind = None;
  int32_t padding = 0;
  int64_t row = 0;    ///< of the tensor of indices
  int64_t value = 0;  ///< the index
  int64_t limit = 0;  ///< rows of the table, classes, or the start of the token before

  /// Throws LogicError where a kernel found something, and forgets it.
  void check();
};

}  // namespace ebb
