// The matrix of schedules that must give the same bits: all of it, and a small covering subset.
//
// A class is a choice of the three settings that may change the bits: {dtype, clip, accumulation}.
// A schedule is a choice of the eight settings that may not: {memory, chunk size, recompute,
// threads, update order, micro-batch order, activations, what stays between steps}. The cover
// contains, for any three of the eleven settings, every combination of their values. Deterministic.
#pragma once

#include <array>
#include <vector>

#include "tests/trainer/cases.h"

namespace ebb::test {

/// The index of the value of each setting: dtype, clip, accumulation, memory, chunk size,
/// recompute, threads, update order, micro-batch order, activations, what stays between steps.
using Choice = std::array<int, 11>;
inline constexpr Choice kNumValues = {2, 2, 3, 3, 3, 4, 3, 3, 2, 2, 3};

TrainingCase case_of(const Choice& choice);
std::vector<Choice> whole_matrix();
std::vector<Choice> cover_of_matrix();
/// Returns the number of combinations of the values of three settings that `cover` lacks.
size_t num_missing_triples(const std::vector<Choice>& cover);

}  // namespace ebb::test
