// Denormal numbers count as zero while a FlushDenormals lives.
#pragma once

#include <xmmintrin.h>

namespace ebb {

/// Sets flush-to-zero and denormals-are-zero of the calling thread (x86: FTZ and DAZ). The
/// destructor restores what was set before. REQUIRES: destroyed by the thread that made it.
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
