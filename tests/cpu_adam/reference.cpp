#include "tests/cpu_adam/reference.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace ebb::test {
namespace {

using Eigen::ArrayXd;

constexpr double kHalfUlp = 0x1p-24;  // relative error of one rounding to fp32
constexpr double kSecondOrder = 1.0001;

ArrayXd array(std::span<const float> values) {
  return Eigen::Map<const Eigen::ArrayXf>(values.data(), std::ssize(values)).cast<double>();
}

}  // namespace

Reference::Reference(std::span<const float> masters, Bug bug) : bug_(bug) {
  const ArrayXd zero = ArrayXd::Zero(std::ssize(masters));
  master_ = {array(masters), zero};
  momentum_ = variance_ = {zero, zero};
}

void Reference::update(std::span<const float> gradients, const AdamWStep& step, double decay_factor,
                       double learning_rate_factor) {
  const double u = kHalfUlp;
  const double b1 = bug_ == Bug::WrongBeta1 ? step.adam.beta1 + 1e-5 : step.adam.beta1;
  const double b2 = bug_ == Bug::WrongBeta2 ? step.adam.beta2 + 1e-5 : step.adam.beta2;
  const double t = static_cast<double>(step.t) + (bug_ == Bug::StepOffByOne ? 1 : 0);
  const double lr = step.learning_rate * learning_rate_factor;
  const double wd = step.adam.weight_decay * decay_factor;
  const double scale = bug_ == Bug::NoGradientScale ? 1.0 : step.gradient_scale;
  const double first = bug_ == Bug::NoFirstBiasCorrection ? 1.0 : 1 - std::pow(b1, t);
  const double second = bug_ == Bug::NoSecondBiasCorrection ? 1.0 : 1 - std::pow(b2, t);
  const double k = 1 / std::sqrt(second);
  const double epsilon = step.adam.epsilon * (bug_ == Bug::EpsilonBeforeCorrection ? k : 1.0);
  const double rate = lr / first;
  const double decay = bug_ == Bug::CoupledDecay ? 0 : lr * wd;

  auto& [p, p_bound] = master_;
  auto& [m, m_bound] = momentum_;
  auto& [v, v_bound] = variance_;
  ArrayXd g = array(gradients) * scale;
  if (bug_ == Bug::CoupledDecay) g += wd * p;

  // Two roundings for a rounded constant times a value, one for a sum; g itself has one.
  const ArrayXd m_new = b1 * m + (1 - b1) * g, v_new = b2 * v + (1 - b2) * g.square();
  m_bound = b1 * m_bound + u * (2 * b1 * m.abs() + 3 * (1 - b1) * g.abs() + m_new.abs());
  v_bound = b2 * v_bound + u * (2 * b2 * v + 5 * (1 - b2) * g.square() + v_new);
  m = m_new;
  v = v_new;

  const ArrayXd root = v.sqrt();
  const ArrayXd root_bound = u * root + (root > 0).select(v_bound / (2 * root), 0);
  const ArrayXd denominator = root * k + epsilon;
  const ArrayXd denominator_bound = k * root_bound + u * (2 * root * k + epsilon + denominator);
  const ArrayXd quotient = m / denominator;
  const ArrayXd quotient_bound =
      (m_bound + quotient.abs() * denominator_bound) / denominator + u * quotient.abs();
  const ArrayXd change = rate * quotient;
  const ArrayXd change_bound = rate * quotient_bound + 2 * u * change.abs();

  const ArrayXd decayed = decay * (bug_ == Bug::DecayAfterUpdate ? ArrayXd(p - change) : p);
  const ArrayXd total = decayed + change;
  p -= total;
  p_bound =
      (1 - decay) * p_bound + 2 * u * decayed.abs() + change_bound + u * (total.abs() + p.abs());
}

double Reference::worst_ratio(std::span<const float> actual, const Plane& expected) {
  // The smallest normal float is added because a bound is 0 while all gradients are 0.
  const ArrayXd ratios =
      (array(actual) - expected.value).abs() /
      (expected.bound * kSecondOrder + static_cast<double>(std::numeric_limits<float>::min()));
  return ratios.isNaN().select(std::numeric_limits<double>::infinity(), ratios).maxCoeff();
}

double Reference::worst_ratio(std::span<const float> masters, std::span<const float> momenta,
                              std::span<const float> variances) const {
  return std::max({worst_ratio(masters, master_), worst_ratio(momenta, momentum_),
                   worst_ratio(variances, variance_)});
}

}  // namespace ebb::test
