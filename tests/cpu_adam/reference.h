// AdamW in fp64, written from its definition, with a bound on the distance of a correct fp32 run.
//
// The bound adds half a unit in the last place for each rounding of adamw.h, constants included,
// operation by operation, and carries the errors of earlier steps. It is as tight as a bound for
// each element can be without repeating the arithmetic.
#pragma once

#include <Eigen/Core>
#include <span>

#include "cpu_adam/adamw.h"

namespace ebb::test {

/// Mistakes that a comparison with the reference must find.
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

  const Eigen::ArrayXd& masters() const { return master_.value; }
  /// The largest |value - reference| / bound over all elements and planes. It is at most 1 for a
  /// correct update.
  double worst_ratio(std::span<const float> masters, std::span<const float> momenta,
                     std::span<const float> variances) const;

 private:
  struct Plane {
    Eigen::ArrayXd value, bound;
  };
  static double worst_ratio(std::span<const float> actual, const Plane& expected);

  Bug bug_;
  Plane master_, momentum_, variance_;
};

}  // namespace ebb::test
