#include <fmt/format.h>

#include "chunk/index_format.h"
#include "scheduler/plan/plan.h"

namespace ebb {

std::string to_string(const Plan& plan, const Trace& trace) {
  std::string text;
  const auto list_residents = [&](std::string_view when, BlockIndex ChunkRecord::*block) {
    for (const ChunkIndex c : plan.chunks_by(block)) {
      text += fmt::format("{:>6} weights {} in block {}\n", when, c, plan.chunks[c].*block);
    }
  };
  list_residents("start", &ChunkRecord::first_block);
  for (size_t i = 0; i < plan.ops.size(); ++i) {
    const Op& op = plan.ops[i];
    text += fmt::format("{:>6} {:<6}", i, name_of(op.kind));
    if (op.kind == OpKind::Call) {
      const Call& m = trace.calls[op.call];
      text += fmt::format(" {} {} {}", op.call, name_of(m.phase), m.name);
    } else if (op.kind != OpKind::Norm) {
      text += fmt::format(" {} {}", name_of(op.chunk.space), op.chunk.index);
    }
    if (op.kind == OpKind::Send || op.kind == OpKind::Receive)
      text += fmt::format(" {}", name_of(op.message));
    if (op.kind == OpKind::Move) text += fmt::format(" {} -> {}", name_of(op.from), name_of(op.to));
    if (op.slot != kNone) text += fmt::format(" slot {}", op.slot);
    if (op.block != kNone) text += fmt::format(" block {}", op.block);
    if (op.num_waits > 0) text += " after";
    for (const OpIndex w : plan.waits_of(op)) text += fmt::format(" {}", w);
    text += '\n';
  }
  list_residents("end", &ChunkRecord::last_block);
  return text;
}

}  // namespace ebb
