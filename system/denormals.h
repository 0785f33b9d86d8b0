// Denormal numbers count as zero while a FlushDenormals lives.
#pragma once

#include <xmmintrin.h>

namespace ebb {

/// Sets flush-to-zero and denormals-are-zero of the calling thread (x86: FTZ and DAZ). The
/// destructor restores the old settings. REQUIRES: the same thread constructs and destroys the
/// object.
class FlushDenormals {
 public:
  FlushDenormals() : saved_(_mm_getcsr()) { _mm_setcsr(saved_ | 0x8040u); }
  ~FlushDenormals() { _mm_setcsr(saved_); }
  FlushDenormals(const FlushDenormals&) = delete;
  FlushDenormals& operator=(const FlushDenormals&) = delete;

 private:
  const unsigned saved_;
};

}  // namespace ebb
