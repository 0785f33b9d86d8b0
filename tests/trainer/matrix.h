// The matrix of schedules that must give the same bits, whole and as a cover.
//
// A class is what may change the bits: {dtype, clip, accumulation}. A schedule is what may not:
// {memory, chunk size, recompute, threads, update order, micro-batch order, activations, what
// stays between steps}. The cover holds, for any three of the eleven, every combination of their
// values. Deterministic.
#pragma once

#include <array>
#include <vector>

#include "tests/trainer/cases.h"

namespace ebb::test {

/// For each of the eleven, which value: dtype, clip, accumulation, memory, chunk size, recompute,
/// threads, update order, micro-batch order, activations, what stays between steps.
using Choice = std::array<int, 11>;
inline constexpr Choice kNumValues = {2, 2, 3, 3, 3, 4, 3, 3, 2, 2, 3};

TrainingCase case_of(const Choice& choice);
std::vector<Choice> whole_matrix();
std::vector<Choice> cover_of_matrix();
/// Combinations of values of three that no choice of `cover` has.
size_t num_missing_triples(const std::vector<Choice>& cover);

}  // namespace ebb::test
