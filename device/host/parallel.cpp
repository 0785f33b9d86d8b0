#include "device/host/parallel.h"

#include <tbb/info.h>
#include <tbb/parallel_for.h>
#include <tbb/partitioner.h>
#include <tbb/task_arena.h>

#include <algorithm>

#if defined(EBB_ANNOTATE_FORK_JOIN)
// ThreadSanitizer cannot see oneTBB's own synchronisation: this file is not instrumented there, and
// says itself that bodies run after the fork and before the join. Bodies are instrumented, so races
// in them are still found.
extern "C" {
void __tsan_acquire(void*);
void __tsan_release(void*);
}
#define EBB_ACQUIRE(address) __tsan_acquire(address)
#define EBB_RELEASE(address) __tsan_release(address)
#else
#define EBB_ACQUIRE(address) (void)(address)
#define EBB_RELEASE(address) (void)(address)
#endif

namespace ebb {

struct ThreadTeam::Arena {
  // More threads than cores would only wait for one another; results do not depend on the number.
  explicit Arena(int num_threads) : arena(std::min(num_threads, tbb::info::default_concurrency())) {
    arena.initialize();
  }
  tbb::task_arena arena;
  char fork = 0, join = 0;  // addresses for the sanitizer
};

ThreadTeam::ThreadTeam(int num_threads)
    : arena_(num_threads > 1 ? std::make_unique<Arena>(num_threads) : nullptr),
      num_threads_(num_threads) {}
ThreadTeam::~ThreadTeam() = default;

void ThreadTeam::run(int64_t n, const void* body, void (*call)(const void*, int64_t)) {
  const auto run_range = [&](int64_t first, int64_t last) {
    FlushDenormals flush;
    for (int64_t i = first; i < last; ++i) call(body, i);
  };
  if (!arena_ || n < 2) {
    run_range(0, n);
    return;
  }
  EBB_RELEASE(&arena_->fork);
  arena_->arena.execute([&] {
    tbb::parallel_for(
        tbb::blocked_range<int64_t>(0, n, 1),
        [&](const tbb::blocked_range<int64_t>& r) {
          EBB_ACQUIRE(&arena_->fork);
          run_range(r.begin(), r.end());
          EBB_RELEASE(&arena_->join);
        },
        tbb::auto_partitioner());
  });
  EBB_ACQUIRE(&arena_->join);
}

}  // namespace ebb
