// Training state for the tests of the optimizer: planes between canary bytes, filled from a seed.
#pragma once

#include <hwy/targets.h>

#include <bit>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "cpu_adam/adamw.h"

namespace ebb::test {

/// n elements between canary bytes. The alignment is that of an element, and no larger.
class Guarded {
 public:
  Guarded(int64_t n, size_t element_bytes);
  std::byte* data() { return bytes_.data() + kCanaries + element_; }
  std::vector<std::byte> content() const;
  bool intact() const;

 private:
  static constexpr size_t kCanaries = 256;
  static constexpr std::byte kCanary{0xA5};
  size_t element_;
  std::vector<std::byte> bytes_;
};

struct Types {
  DType weight;
  DType gradient;
};

inline constexpr Types kAllTypes[] = {{DType::F32, DType::F32},   {DType::F32, DType::BF16},
                                      {DType::F32, DType::F16},   {DType::BF16, DType::F32},
                                      {DType::BF16, DType::BF16}, {DType::BF16, DType::F16},
                                      {DType::F16, DType::F32},   {DType::F16, DType::F16}};

std::string name_of_types(Types types);

/// The planes of AdamW by name.
struct NamedPlanes {
  std::byte* weight = nullptr;
  int16_t* low = nullptr;   ///< only with bf16 weights
  float* master = nullptr;  ///< only with fp16 weights
  float* momentum = nullptr;
  float* variance = nullptr;
};
NamedPlanes named(const Planes& planes);

class State {
 public:
  State(int64_t n, Types types);

  Planes planes();
  int64_t n() const { return n_; }
  std::vector<float> masters();
  std::vector<float> momenta() { return floats(named(planes()).momentum); }
  std::vector<float> variances() { return floats(named(planes()).variance); }
  /// Normally distributed weights with standard deviation 0.02, as in a new model.
  void set_weights(uint64_t seed);
  /// Gradients of both signs over four decades. All are exact in bf16 and in fp16, so that all
  /// types give the same results.
  void set_gradients(uint64_t seed);
  void set_gradient(int64_t i, float value);
  /// The bytes of all planes one after the other.
  std::vector<std::byte> bits() const;
  bool intact() const;

 private:
  std::vector<float> floats(const float* plane) const { return {plane, plane + n_}; }

  int64_t n_;
  Types types_;
  std::vector<Guarded> planes_;  // by index of state_planes()
  Guarded gradient_;
};

/// The gradients that set_gradients(seed) stores.
std::vector<float> make_gradients(int64_t n, uint64_t seed);

/// Restricts run-time dispatch to one instruction set during its lifetime.
class OnlyTarget {
 public:
  explicit OnlyTarget(int64_t target) { choose(target); }
  ~OnlyTarget() { choose(0); }
  OnlyTarget(const OnlyTarget&) = delete;
  OnlyTarget& operator=(const OnlyTarget&) = delete;

 private:
  static void choose(int64_t targets) {
    hwy::SetSupportedTargetsForTest(targets);
    hwy::GetChosenTarget().DeInit();
  }
};

}  // namespace ebb::test
