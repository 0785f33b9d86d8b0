// The data: points on three interleaved spirals, and which spiral each lies on.
#pragma once

#include <cstdint>
#include <random>
#include <vector>

inline constexpr int64_t kNumClasses = 3;

/// Fills points (N, 2) and labels (N).
void draw_spirals(std::mt19937& random, std::vector<float>& points, std::vector<int32_t>& labels);
