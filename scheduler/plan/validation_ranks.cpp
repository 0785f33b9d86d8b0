#include "scheduler/plan/validation_ranks.h"

#include <fmt/format.h>

#include <array>

#include "chunk/index_format.h"
#include "scheduler/plan/sends.h"

namespace ebb {
namespace {

constexpr size_t kMostMessages = 20;

/// Runs the plans of all ranks without time: an operation is done as soon as it can be.
class AllRanks {
 public:
  explicit AllRanks(std::span<const Plan* const> plans) : sends_(plans) {
    for (const Plan* plan : plans) {
      Rank& rank = ranks_.emplace_back(Rank{.plan = plan});
      rank.done.resize(plan->ops.size());
      for (OpIndex i{0}; i < plan->ops.size(); ++i) {
        rank.streams[static_cast<int>(plan->ops[i].stream)].push_back(i);
      }
    }
  }

  std::vector<std::string> run() {
    for (bool moves = true; moves;) {
      moves = false;
      for (uint32_t rank = 0; rank < ranks_.size(); ++rank) moves |= advance(rank);
    }
    std::vector<std::string> messages;
    for (size_t r = 0; r < ranks_.size(); ++r) describe_stuck(r, messages);
    return messages;
  }

 private:
  struct Rank {
    const Plan* plan;
    std::array<std::vector<OpIndex>, kNumStreamKinds> streams = {};
    std::array<size_t, kNumStreamKinds> next = {};  // [stream] the position of its next operation
    std::vector<uint8_t> done = {};
    uint32_t num_submitted = 0;  // operations that the program thread has passed
  };

  static bool has_waits_done(const Rank& rank, const Op& op) {
    for (const OpIndex w : rank.plan->waits_of(op)) {
      if (!rank.done[w]) return false;
    }
    return true;
  }

  /// The program thread submits in the order of the plan. It submits a call or a fetch when the
  /// loads that it names are done, or earlier.
  static bool submit(Rank& rank) {
    const uint32_t before = rank.num_submitted;
    for (; rank.num_submitted < rank.done.size(); ++rank.num_submitted) {
      const Op& op = rank.plan->ops[rank.num_submitted];
      if (op.kind != OpKind::Call && op.stream != StreamKind::Fetch) continue;
      for (const OpIndex w : rank.plan->waits_of(op)) {
        const bool loads = rank.plan->ops[w].stream == StreamKind::Load;
        if (loads && !rank.done[w]) return rank.num_submitted != before;
      }
    }
    return rank.num_submitted != before;
  }

  bool advance(uint32_t place) {
    Rank& rank = ranks_[place];
    bool moves = submit(rank);
    for (int s = 0; s < kNumStreamKinds; ++s) {
      while (rank.next[s] < rank.streams[s].size()) {
        const OpIndex i = rank.streams[s][rank.next[s]];
        const Op& op = rank.plan->ops[i];
        const bool is_submitted = is_of_copy_thread(op) || i < rank.num_submitted;
        if (!is_submitted || !has_waits_done(rank, op) || !is_there(op, place)) break;
        rank.done[i] = true;
        ++rank.next[s];
        moves = true;
      }
    }
    return moves;
  }

  /// Has each rank that must send this message sent it?
  bool is_there(const Op& op, uint32_t receiver) const {
    if (op.kind != OpKind::Receive) return true;
    return sends_.are_done(op, receiver, [&](const Sender& sender) {
      return ranks_[sender.place].done[sender.send] != 0;
    });
  }

  void describe_stuck(size_t r, std::vector<std::string>& messages) const {
    const Rank& rank = ranks_[r];
    for (int s = 0; s < kNumStreamKinds && messages.size() < kMostMessages; ++s) {
      if (rank.next[s] == rank.streams[s].size()) continue;
      const OpIndex i = rank.streams[s][rank.next[s]];
      const Op& op = rank.plan->ops[i];
      if (op.kind != OpKind::Receive) continue;
      messages.push_back(fmt::format("rank {}, op {}: waits for ever for {} of parameter chunk {}",
                                     r, i, name_of(op.message), op.chunk.index));
    }
    if (messages.empty() && rank.num_submitted < rank.done.size()) {
      messages.push_back(fmt::format("rank {} does not get past op {}", r, rank.num_submitted));
    }
  }

  const Sends sends_;
  std::vector<Rank> ranks_;
};

}  // namespace

std::vector<std::string> validate_ranks(std::span<const Plan* const> plans) {
  return AllRanks(plans).run();
}

}  // namespace ebb
