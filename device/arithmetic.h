// How the host multiplies matrices of bf16. Pure functions, thread-safe.
//
// Either way sums are fp32. The choice is part of a result's bits, so it is never made by timing: a
// fixed table over processors says which way is faster, docs/decisions.md has the measurements, and
// the user may choose.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace ebb {

enum class Arithmetic : uint8_t {
  Fp32,     ///< bf16 is widened, then fused multiply-adds
  Bf16Dot,  ///< the processor's dot product of pairs of bf16 (x86: AVX512_BF16)
};

std::string_view name_of(Arithmetic arithmetic);  ///< "fp32", "bf16-dot"

/// What the table looks at.
struct Processor {
  std::string vendor;  ///< "AuthenticAMD"
  int family = 0;
  int model = 0;
  bool has_bf16_dot = false;
};
Processor this_processor();

/// The faster way where it was measured, fp32 elsewhere.
Arithmetic preferred_arithmetic(const Processor& processor);

/// What was asked for, or what is preferred. Throws ConfigError where this processor cannot do it.
Arithmetic choose_arithmetic(std::optional<Arithmetic> asked, const Processor& processor);

}  // namespace ebb
