#include "tests/scheduler/plan_edits.h"

#include <algorithm>

namespace ebb::test {
namespace {

/// An operation of a plan with its waits, which name operations by their index in the original
/// plan. A list of entries is easier to edit than a plan.
struct Entry {
  OpIndex number;
  Op op;
  std::vector<OpIndex> waits;
};

std::vector<Entry> entries_of(const Plan& plan) {
  std::vector<Entry> entries;
  for (OpIndex i{0}; i < plan.ops.size(); ++i) {
    const auto waits = plan.waits_of(plan.ops[i]);
    entries.push_back({i, plan.ops[i], {waits.begin(), waits.end()}});
  }
  return entries;
}

Plan plan_of(const Plan& original, const std::vector<Entry>& entries) {
  Plan plan = original;
  plan.ops.clear();
  plan.waits.clear();
  std::vector<OpIndex> index(original.ops.size() + 1, kNone);
  for (const Entry& entry : entries) {
    Op op = entry.op;
    op.first_wait = static_cast<uint32_t>(plan.waits.size());
    for (const OpIndex w : entry.waits) {
      if (index[w] != kNone) plan.waits.push_back(index[w]);
    }
    op.num_waits = static_cast<uint32_t>(plan.waits.size()) - op.first_wait;
    index[entry.number] = OpIndex(plan.ops.size());
    plan.ops.push_back(op);
  }
  return plan;
}

}  // namespace

std::optional<OpIndex> find_op(const Plan& plan, const OpTest& test, uint32_t from) {
  for (OpIndex i{from}; i < plan.ops.size(); ++i) {
    if (test(plan.ops[i])) return i;
  }
  return std::nullopt;
}

Plan without_op(const Plan& plan, OpIndex op) {
  std::vector<Entry> entries = entries_of(plan);
  const std::vector<OpIndex> inherited = entries[op].waits;
  entries.erase(entries.begin() + op);
  for (Entry& entry : entries) {
    if (std::erase(entry.waits, op) == 0) continue;
    entry.waits.insert(entry.waits.end(), inherited.begin(), inherited.end());
  }
  return plan_of(plan, entries);
}

Plan without_wait(const Plan& plan, OpIndex op, OpIndex wait) {
  std::vector<Entry> entries = entries_of(plan);
  std::erase(entries[op].waits, wait);
  return plan_of(plan, entries);
}

Plan with_wait(const Plan& plan, OpIndex op, OpIndex wait) {
  std::vector<Entry> entries = entries_of(plan);
  entries[op].waits.push_back(wait);
  return plan_of(plan, entries);
}

Plan with_op_before(const Plan& plan, OpIndex op, OpIndex before) {
  std::vector<Entry> entries = entries_of(plan);
  const Entry moved = entries[op];
  entries.erase(entries.begin() + op);
  entries.insert(entries.begin() + before, moved);
  return plan_of(plan, entries);
}

Plan with_op_twice(const Plan& plan, OpIndex op) {
  std::vector<Entry> entries = entries_of(plan);
  Entry again = entries[op];
  again.number = OpIndex(plan.ops.size());
  entries.insert(entries.begin() + op + 1, again);
  return plan_of(plan, entries);
}

}  // namespace ebb::test
