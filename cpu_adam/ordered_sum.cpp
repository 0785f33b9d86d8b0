#include "cpu_adam/ordered_sum.h"

#include <algorithm>

#include "cpu_adam/ordered_sum_kernel.h"
#include "device/errors.h"
#include "device/kernel_arguments.h"
#include "system/parallel_loop.h"

namespace ebb {
namespace {

void check_partials(int64_t count, std::span<const double> partials) {
  EBB_CHECK(std::ssize(partials) == ceil_div(count, kPieceElements),
            "one partial norm for each piece of the gradient");
}

}  // namespace

void round_sums_in_order(ThreadTeam& team, std::span<const GroupSums> uses, DType sum_type,
                         int64_t count, std::byte* gradient, DType type,
                         std::span<double> partials) {
  EBB_CHECK(count >= 0 && is_float(type), "a gradient of a float type");
  EBB_CHECK(sum_type == DType::F32 || sum_type == DType::BF16, "gradient sums in fp32 or bf16");
  EBB_CHECK(!uses.empty() && std::ranges::none_of(uses, &GroupSums::empty),
            "a finished gradient needs at least one sum of each use");
  if (!partials.empty()) check_partials(count, partials);
  for_each_range(team, count, kPieceElements, [&](int64_t begin, int64_t end) {
    const double squares =
        round_sums(uses, sum_type, begin, end - begin, gradient, type, !partials.empty());
    if (!partials.empty()) partials[static_cast<size_t>(begin / kPieceElements)] = squares;
  });
}

void add_in_order(ThreadTeam& team, const float* before, GroupSums groups, DType sum_type,
                  int64_t count, float* sum) {
  EBB_CHECK(count >= 0 && !groups.empty(), "at least one group is added");
  EBB_CHECK(sum_type == DType::F32 || sum_type == DType::BF16, "gradient sums in fp32 or bf16");
  for_each_range(team, count, kPieceElements, [&](int64_t begin, int64_t end) {
    add_groups(before, groups, sum_type, begin, end - begin, sum);
  });
}

void partial_norms(ThreadTeam& team, const std::byte* gradient, DType type, int64_t count,
                   std::span<double> partials) {
  EBB_CHECK(count >= 0 && is_float(type), "a gradient of a float type");
  check_partials(count, partials);
  for_each_range(team, count, kPieceElements, [&](int64_t begin, int64_t end) {
    partials[static_cast<size_t>(begin / kPieceElements)] =
        sum_of_squares(gradient, type, begin, end - begin);
  });
}

}  // namespace ebb
