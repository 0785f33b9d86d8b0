#include "device/host/loop_queue.h"

#include <optional>
#include <span>
#include <utility>

#include "device/device.h"
#include "device/errors.h"
#include "device/host/quiet_lock.h"

namespace ebb {
namespace {

constexpr int kIndexBits = 32;

uint64_t word_of(uint32_t number, uint64_t index) { return uint64_t{number} << kIndexBits | index; }

}  // namespace

LoopQueue::LoopQueue(std::vector<NodeThreads> nodes)
    : team_(std::move(nodes)), num_summoned_(new std::atomic<int>[team_.nodes().size()] {}) {
  for (Slot& s : slots_) s.shares.reset(new Share[team_.nodes().size()]);
}

LoopQueue::~LoopQueue() { team_.wait_for_summoned(); }

void LoopQueue::push(const Loop& loop) {
  EBB_CHECK(size() < kCapacity, "a queue of loops is full");
  EBB_CHECK(loop.n >= 1 && loop.n < INT32_MAX, "a loop of no bodies, or of too many");
  const uint32_t number = end_;
  Slot& s = slot(number);
  s.loop = loop;
  s.num_left = loop.n;
  give_order(&s);
  const std::span<const NodeThreads> nodes = team_.nodes();
  for (size_t k = 0; k < nodes.size(); ++k) {
    const TaskRange tasks = tasks_of_node(loop.n, nodes, k);
    s.shares[k].next = word_of(number, UINT32_MAX);  // who still looks here finds nothing
    s.shares[k].last = static_cast<uint32_t>(tasks.last);
    s.shares[k].next = word_of(number, static_cast<uint64_t>(tasks.first));
  }
  end_ = number + 1;
  for (size_t k = 0; k < nodes.size(); ++k) {
    // Of twice as many as there are threads half have yet to come, and will see this loop.
    const int others = nodes[k].num_threads - (k == 0 ? 1 : 0);
    if (num_summoned_[k] >= 2 * others) continue;
    num_summoned_[k] += others;
    team_.summon(
        k, others, [](void* queue, size_t node) { static_cast<LoopQueue*>(queue)->help(node); },
        this);
  }
}

/// What a body writes is ordered behind push(), and before pop().
bool LoopQueue::run_one_of(uint32_t number, size_t node) {
  Slot& s = slot(number);
  Share& share = s.shares[node];
  uint64_t word = share.next;
  do {
    const auto index = static_cast<uint32_t>(word);
    if (word >> kIndexBits != number || index >= share.last) return false;
  } while (!share.next.compare_exchange_weak(word, word + 1));
  take_order(&s);
  try {
    std::optional<ProfiledRange> range;
    if (s.loop.shown_on != nullptr) range.emplace(*s.loop.shown_on, s.loop.range);
    s.loop.body(static_cast<uint32_t>(word));
  } catch (...) {
    QuietLock lock(s.mutex);
    if (!s.error) s.error = std::current_exception();
  }
  give_order(&s.num_left);
  if (s.num_left.fetch_sub(1) == 1) s.num_left.notify_all();
  return true;
}

void LoopQueue::help(size_t node) {
  const auto run_one_of_any = [&] {
    const uint32_t end = end_;  // once: it grows
    return run_one_from(end - kCapacity, end, node);
  };
  {
    const FlushDenormals flush;
    while (run_one_of_any()) {
    }
  }
  --num_summoned_[node];
}

bool LoopQueue::run_one_from(uint32_t begin, uint32_t end, size_t node) {
  for (uint32_t i = begin; i != end; ++i) {
    if (run_one_of(i, node)) return true;
  }
  return false;
}

bool LoopQueue::run_one(size_t num_spared) {
  bool found = false;
  for (size_t i = 0; i + num_spared < size() && !found; ++i) {
    team_.call_on_first_node([&] { found = run_one_of(begin_ + static_cast<uint32_t>(i), 0); });
  }
  return found;
}

bool LoopQueue::is_done() const { return slot(begin_).num_left == 0; }

void LoopQueue::wait_until_done() const {
  const std::atomic<int64_t>& num_left = slot(begin_).num_left;
  for (int64_t n = num_left; n != 0; n = num_left) num_left.wait(n);
}

void LoopQueue::pop() {
  EBB_CHECK(size() > 0 && is_done(), "the oldest loop is not done");
  Slot& s = slot(begin_++);
  take_order(&s.num_left);
  if (s.error) std::rethrow_exception(std::exchange(s.error, nullptr));
  if (s.loop.then) s.loop.then();
}

}  // namespace ebb
