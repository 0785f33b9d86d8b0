#include "tools/residency_intervals.h"

#include <algorithm>
#include <optional>
#include <tuple>
#include <utility>

namespace ebb {

std::vector<Stay> stays(const Plan& plan, std::span<const OpTime> times) {
  std::vector<Stay> all;
  std::vector<std::optional<Stay>> in_block(plan.num_blocks);
  const auto end = [&](BlockIndex block, double time_s) {
    std::optional<Stay>& stay = in_block[block];
    if (!stay) return;
    stay->end_s = time_s;
    all.push_back(*stay);
    stay.reset();
  };
  for (const ChunkIndex c : plan.chunks_that(&ChunkRecord::begins_on_device)) {
    const BlockIndex block = plan.chunks[c].first_block;
    in_block[block] = Stay{.chunk = {Space::Weights, c}, .block = block};
  }
  double step_s = 0;
  for (OpIndex i{0}; i < plan.ops.size(); ++i) {
    const Op& op = plan.ops[i];
    step_s = std::max(step_s, times[i].end_s);
    const bool gives = op.kind == OpKind::Move && op.to == Tier::Device;
    if (!gives && op.kind != OpKind::Drop) continue;
    end(op.block, times[i].start_s);
    if (!gives) continue;
    in_block[op.block] = Stay{.chunk = op.chunk,
                              .block = op.block,
                              .start_s = times[i].start_s,
                              .loaded_s = times[i].end_s};
  }
  for (BlockIndex block{0}; block < plan.num_blocks; ++block) end(block, step_s);
  return all;
}

std::vector<BytesOnDevice> bytes_on_device(std::span<const Stay> stays, size_t chunk_bytes) {
  // Time, space, and true if a chunk arrives: at equal times, chunks that leave are first.
  std::vector<std::tuple<double, bool, int>> changes;
  for (const Stay& stay : stays) {
    const int space = static_cast<int>(stay.chunk.space);
    changes.emplace_back(stay.start_s, true, space);
    changes.emplace_back(stay.end_s, false, space);
  }
  std::ranges::sort(changes);
  std::vector<BytesOnDevice> all(1);
  for (const auto& [time_s, comes, space] : changes) {
    if (time_s > all.back().time_s) {
      all.push_back(all.back());
      all.back().time_s = time_s;
    }
    size_t& bytes = all.back().bytes[static_cast<size_t>(space)];
    bytes = comes ? bytes + chunk_bytes : bytes - chunk_bytes;
  }
  return all;
}

}  // namespace ebb
