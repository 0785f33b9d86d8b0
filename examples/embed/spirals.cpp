#include "spirals.h"

#include <cmath>
#include <numbers>

void draw_spirals(std::mt19937& random, std::vector<float>& points, std::vector<int32_t>& labels) {
  std::uniform_real_distribution<float> along(0.1f, 1.0f);
  std::normal_distribution<float> noise(0.0f, 0.1f);
  for (size_t i = 0; i < labels.size(); ++i) {
    labels[i] = static_cast<int32_t>(random() % kNumClasses);
    const float radius = along(random);
    const float start = 2 * std::numbers::pi_v<float> * static_cast<float>(labels[i]) / kNumClasses;
    const float angle = start + 4 * radius + noise(random);
    points[2 * i] = radius * std::cos(angle);
    points[2 * i + 1] = radius * std::sin(angle);
  }
}
