#include "tests/cpu_adam/reference.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace ebb::test {
namespace {

constexpr double kHalfUlp = 0x1p-24;  // relative error of one rounding to fp32
constexpr double kSecondOrder = 1.0001;

}  // namespace

Reference::Reference(std::span<const float> masters, Bug bug)
    : bug_(bug), elements_(masters.size()) {
  for (size_t i = 0; i < masters.size(); ++i) elements_[i].master.value = masters[i];
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

  for (size_t i = 0; i < elements_.size(); ++i) {
    auto& [p, m, v] = elements_[i];
    double g = gradients[i] * scale;
    if (bug_ == Bug::CoupledDecay) g += wd * p.value;

    // Bounds: two roundings for a rounded constant times a value, one for a sum; g itself carries
    // one.
    const double m_new = b1 * m.value + (1 - b1) * g;
    m.bound = b1 * m.bound +
              u * (2 * b1 * std::abs(m.value) + 3 * (1 - b1) * std::abs(g) + std::abs(m_new));
    const double v_new = b2 * v.value + (1 - b2) * g * g;
    v.bound = b2 * v.bound + u * (2 * b2 * v.value + 5 * (1 - b2) * g * g + v_new);
    m.value = m_new;
    v.value = v_new;

    const double root = std::sqrt(v.value);
    const double root_bound = u * root + (root > 0 ? v.bound / (2 * root) : 0);
    const double denominator = root * k + epsilon;
    const double denominator_bound = k * root_bound + u * (2 * root * k + epsilon + denominator);
    const double quotient = m.value / denominator;
    const double quotient_bound =
        (m.bound + std::abs(quotient) * denominator_bound) / denominator + u * std::abs(quotient);
    const double step = rate * quotient;
    const double step_bound = rate * quotient_bound + 2 * u * std::abs(step);

    const double decay = bug_ == Bug::CoupledDecay ? 0 : lr * wd;
    const double decayed =
        bug_ == Bug::DecayAfterUpdate ? decay * (p.value - step) : decay * p.value;
    const double change = decayed + step;
    const double change_bound = 2 * u * std::abs(decayed) + step_bound + u * std::abs(change);
    const double p_new = p.value - change;
    p.bound = (1 - decay) * p.bound + change_bound + u * std::abs(p_new);
    p.value = p_new;
  }
}

double Reference::ratio(float actual, const Value& expected) {
  const double error = std::abs(actual - expected.value);
  if (std::isnan(error)) return std::numeric_limits<double>::infinity();
  // Gradients may be 0, but no bound of a right run is smaller than the smallest normal float.
  return error / (expected.bound * kSecondOrder + std::numeric_limits<float>::min());
}

double Reference::worst_ratio(std::span<const float> masters, std::span<const float> momenta,
                              std::span<const float> variances) const {
  double worst = 0;
  for (size_t i = 0; i < elements_.size(); ++i) {
    worst = std::max({worst, ratio(masters[i], elements_[i].master),
                      ratio(momenta[i], elements_[i].momentum),
                      ratio(variances[i], elements_[i].variance)});
  }
  return worst;
}

}  // namespace ebb::test
