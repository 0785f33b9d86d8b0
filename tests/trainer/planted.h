// Plans from which waits are removed, and a model that makes the resulting race happen every time.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <thread>

#include "scheduler/run/trainer.h"
#include "tests/forwarding_model.h"

namespace ebb::test {

/// First sleeps for pause_ms, so that the copy thread runs ahead and the race happens every time.
class LateModel : public ForwardingModel {
 public:
  using ForwardingModel::ForwardingModel;
  Variable begin(Tape& tape, std::span<const Tensor> inputs) const override {
    std::this_thread::sleep_for(std::chrono::milliseconds(pause_ms));
    return model_.begin(tape, inputs);
  }
  int pause_ms = 0;
};

inline bool loads(const Op& op, Space space) {
  return op.kind == OpKind::Move && op.to == Tier::Device && op.from == Tier::Host &&
         op.chunk.space == space;
}

inline OpIndex nth_op(const Plan& plan, uint32_t n, const std::function<bool(const Op&)>& test) {
  for (OpIndex i{0}; i < plan.ops.size(); ++i) {
    if (test(plan.ops[i]) && n-- == 0) return i;
  }
  ADD_FAILURE() << "the plan has no such operation";
  return OpIndex(0);
}

/// Removes all waits of calls for the n-th load of weights, counted from 0, and for the load after
/// it. The first load may finish in time by chance; the second cannot.
inline Preparation without_waits(Preparation prepared, uint32_t n) {
  Plan& plan = prepared.plan;
  const auto loads_weights = [](const Op& op) { return loads(op, Space::Weights); };
  const OpIndex first = nth_op(plan, n, loads_weights), second = nth_op(plan, n + 1, loads_weights);
  for (Op& op : plan.ops) {
    if (op.kind != OpKind::Call) continue;
    const auto begin = plan.waits.begin() + op.first_wait;
    const auto end = std::remove_if(begin, begin + op.num_waits,
                                    [&](OpIndex w) { return w == first || w == second; });
    op.num_waits = static_cast<uint32_t>(end - begin);
  }
  return prepared;
}

}  // namespace ebb::test
