#include "system/thread_team.h"

#include <tbb/global_control.h>
#include <tbb/parallel_for.h>
#include <tbb/partitioner.h>
#include <tbb/task_arena.h>
#include <tbb/task_group.h>

#include <algorithm>
#include <deque>
#include <exception>

#include "system/denormals.h"
#include "system/numa.h"

#if defined(EBB_ANNOTATE_FORK_JOIN)
// ThreadSanitizer cannot see the synchronisation inside oneTBB. So this file is not instrumented,
// and it annotates that bodies run after the fork and before the join. Bodies are instrumented, so
// ThreadSanitizer finds races in bodies.
extern "C" {
void __tsan_acquire(void*);
void __tsan_release(void*);
// Threads of oneTBB free its own memory late in the process. These reports do not concern bodies.
const char* __tsan_default_suppressions() { return "called_from_lib:libtbb.so"; }
}
#define EBB_ACQUIRE(address) __tsan_acquire(address)
#define EBB_RELEASE(address) __tsan_release(address)
#else
#define EBB_ACQUIRE(address) (void)(address)
#define EBB_RELEASE(address) (void)(address)
#endif

namespace ebb {
namespace {

// oneTBB has at most as many threads as the process has cores, and warns if more are requested. The
// caller, which works in the first arena, is one of these threads.
tbb::task_arena::constraints constraints_of(const NodeThreads& node, bool first) {
  const auto all = static_cast<int>(
      tbb::global_control::active_value(tbb::global_control::max_allowed_parallelism));
  return {node.node, std::min(node.num_threads, first ? all : std::max(all - 1, 1))};
}

}  // namespace

/// One oneTBB arena per node. The caller works in the first arena, then helps in the others.
struct ThreadTeam::Arenas {
  struct Node {
    // Only the first arena reserves a slot for the caller. All threads of other nodes belong to
    // oneTBB.
    Node(const NodeThreads& node, bool first) : arena(constraints_of(node, first), first ? 1 : 0) {
      arena.initialize();
    }
    tbb::task_arena arena;
    tbb::task_group group;
  };

  explicit Arenas(std::span<const NodeThreads> threads) {
    for (const NodeThreads& node : threads) nodes.emplace_back(node, nodes.empty());
  }

  /// Runs all ranges. Returns when all are finished, and rethrows the exception of a body.
  template <class RunRange>
  void run(int64_t n, std::span<const NodeThreads> threads, const RunRange& run_range) {
    const auto run_tasks = [&](TaskRange tasks) {
      tbb::parallel_for(
          tbb::blocked_range<int64_t>(tasks.first, tasks.last, 1),
          [&](const tbb::blocked_range<int64_t>& r) { run_range(r.begin(), r.end()); },
          tbb::auto_partitioner());
    };
    for (size_t k = 1; k < nodes.size(); ++k) {
      nodes[k].arena.enqueue(nodes[k].group.defer(
          [&run_tasks, tasks = tasks_of_node(n, threads, k)] { run_tasks(tasks); }));
    }
    std::exception_ptr error;
    const auto work = [&error](tbb::task_arena& arena, const auto& body) {
      try {
        arena.execute(body);
      } catch (...) {
        error = std::current_exception();
      }
    };
    work(nodes[0].arena, [&] { run_tasks(tasks_of_node(n, threads, 0)); });
    for (size_t k = 1; k < nodes.size(); ++k) {
      work(nodes[k].arena, [&] { nodes[k].group.wait(); });
    }
    if (error) std::rethrow_exception(error);
  }

  std::deque<Node> nodes;   // arenas do not move
  char fork = 0, join = 0;  // addresses for the sanitizer
};

ThreadTeam::ThreadTeam(int num_threads)
    : ThreadTeam(distribute_threads(num_threads, machine_nodes())) {}

ThreadTeam::ThreadTeam(std::vector<NodeThreads> nodes) : nodes_(std::move(nodes)), num_threads_(0) {
  for (const NodeThreads& node : nodes_) num_threads_ += node.num_threads;
  if (num_threads_ > 1) arenas_ = std::make_unique<Arenas>(nodes_);
}
ThreadTeam::~ThreadTeam() = default;

void ThreadTeam::run(int64_t n, const void* body, void (*call)(const void*, int64_t)) {
  const auto run_range = [&](int64_t first, int64_t last) {
    FlushDenormals flush;
    for (int64_t i = first; i < last; ++i) call(body, i);
  };
  if (!arenas_ || n < 2) {
    run_range(0, n);
    return;
  }
  EBB_RELEASE(&arenas_->fork);
  arenas_->run(n, nodes_, [&](int64_t first, int64_t last) {
    EBB_ACQUIRE(&arenas_->fork);
    run_range(first, last);
    EBB_RELEASE(&arenas_->join);
  });
  EBB_ACQUIRE(&arenas_->join);
}

}  // namespace ebb
