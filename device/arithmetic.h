// How the host multiplies matrices of bf16. Pure functions, thread-safe.
//
// Sums are fp32 in both arithmetics. The choice changes the bits of results, so it never depends on
// a timing: a fixed table of processors names the faster arithmetic (docs/decisions.md has the
// measurements), and the user can override it.
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

/// The properties by which the table selects an arithmetic.
struct Processor {
  std::string vendor;  ///< "AuthenticAMD"
  int family = 0;
  int model = 0;
  bool has_bf16_dot = false;
};
Processor this_processor();

/// Returns the faster arithmetic for a processor that was measured, and Fp32 for all others.
Arithmetic preferred_arithmetic(const Processor& processor);

/// Returns the requested arithmetic, or the preferred one if none is requested. Throws ConfigError
/// if this processor does not support it.
Arithmetic choose_arithmetic(std::optional<Arithmetic> asked, const Processor& processor);

}  // namespace ebb
