// AdamW in fp64 from its definition, with a running bound on how far a right fp32 run may be from
// it.
//
// The bound adds up, operation by operation, half an ulp for each rounding of adamw.h (constants
// included) and carries what earlier steps left over, so it is as tight as an element-wise bound
// can be without repeating the arithmetic.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "cpu_adam/adamw.h"

namespace ebb::test {

/// Mistakes that the comparison must notice.
enum class Bug {
  None,
  WrongBeta1,
  WrongBeta2,
  NoFirstBiasCorrection,
  NoSecondBiasCorrection,
  DecayAfterUpdate,
  CoupledDecay,
  EpsilonBeforeCorrection,
  NoGradientScale,
  StepOffByOne,
};

class Reference {
 public:
  explicit Reference(std::span<const float> masters, Bug bug = Bug::None);
  void update(std::span<const float> gradients, const AdamWStep& step, double decay_factor,
              double learning_rate_factor);

  /// The largest |value - reference| / bound over all elements and planes: at most 1 for a right
  /// update.
  double worst_ratio(std::span<const float> masters, std::span<const float> momenta,
                     std::span<const float> variances) const;

 private:
  struct Value {
    double value = 0;
    double bound = 0;
  };
  struct Element {
    Value master, momentum, variance;
  };
  static double ratio(float actual, const Value& expected);

  Bug bug_;
  std::vector<Element> elements_;
};

}  // namespace ebb::test
