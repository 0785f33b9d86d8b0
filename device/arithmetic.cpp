#include "device/arithmetic.h"

#include <cpuid.h>

#include <array>
#include <cstring>

#include "device/errors.h"

namespace ebb {
namespace {

struct Registers {
  unsigned a = 0, b = 0, c = 0, d = 0;
};

Registers cpuid(unsigned leaf, unsigned sub_leaf = 0) {
  Registers r;
  __get_cpuid_count(leaf, sub_leaf, &r.a, &r.b, &r.c, &r.d);
  return r;
}

std::string vendor_of(const Registers& r) {
  std::array<char, 12> name;
  std::memcpy(&name[0], &r.b, 4);
  std::memcpy(&name[4], &r.d, 4);
  std::memcpy(&name[8], &r.c, 4);
  return {name.data(), name.size()};
}

/// The processors on which the dot product was measured to be faster than widening.
struct Measured {
  std::string_view vendor;
  int family;
};
constexpr Measured kDotIsFaster[] = {
    {"AuthenticAMD", 25},  // Zen 4; no other model of this family has the instruction
    {"AuthenticAMD", 26},  // Zen 5
};

}  // namespace

std::string_view name_of(Arithmetic arithmetic) {
  return arithmetic == Arithmetic::Fp32 ? "fp32" : "bf16-dot";
}

Processor this_processor() {
  const Registers version = cpuid(1);
  const int family = static_cast<int>(version.a >> 8 & 0xf),
            extended = static_cast<int>(version.a >> 20 & 0xff);
  const int model = static_cast<int>((version.a >> 4 & 0xf) | (version.a >> 12 & 0xf0));
  return {.vendor = vendor_of(cpuid(0)),
          .family = family == 15 ? family + extended : family,
          .model = model,
          .has_bf16_dot = __builtin_cpu_supports("avx512bf16") &&
                          __builtin_cpu_supports("avx512bw") &&
                          __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq")};
}

Arithmetic preferred_arithmetic(const Processor& processor) {
  if (!processor.has_bf16_dot) return Arithmetic::Fp32;
  for (const Measured& m : kDotIsFaster) {
    if (m.vendor == processor.vendor && m.family == processor.family) return Arithmetic::Bf16Dot;
  }
  return Arithmetic::Fp32;
}

Arithmetic choose_arithmetic(std::optional<Arithmetic> asked, const Processor& processor) {
  if (asked == Arithmetic::Bf16Dot && !processor.has_bf16_dot) {
    throw ConfigError(
        "`arithmetic` bf16-dot: this processor has no dot product of bf16 (AVX512_BF16); try "
        "`arithmetic` fp32");
  }
  return asked.value_or(preferred_arithmetic(processor));
}

}  // namespace ebb
