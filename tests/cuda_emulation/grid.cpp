// Compiled without ThreadSanitizer. It sees the kernels, and of this file only the announced
// switches and barriers.
#include "tests/cuda_emulation/grid.h"

#include <array>
#include <atomic>
#include <exception>
#include <memory>
#include <new>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "tests/cuda_emulation/fiber.h"
#include "tests/cuda_emulation/os_threads.h"

#if defined(EBB_TELL_THREAD_SANITIZER)
extern "C" {
void __tsan_acquire(void*);
void __tsan_release(void*);
}
#else
static void __tsan_acquire(void*) {}
static void __tsan_release(void*) {}
#endif

namespace ebb::emulation {
namespace {

constexpr unsigned kWarp = 32;
constexpr unsigned kMostThreads = 1024;
#if defined(EBB_TELL_THREAD_SANITIZER)
constexpr bool kFiberEach = true;  // the sanitizer sees each thread of a block as a thread
#else
constexpr bool kFiberEach = false;
#endif

std::atomic<bool> backwards_{false};

enum class State : uint8_t { New, WaitsForBlock, WaitsForWarp, Done };

struct Thread {
  State state = State::New;
  Place place;
  Fiber* fiber = nullptr;
  uint3 index{};
  uint64_t num_block_waits = 0, num_warp_waits = 0, num_meetings = 0;
};

/// The values of lanes in an exchange. A lane can be one exchange ahead of the others, but not two.
struct Warp {
  Brought brought[2][kWarp];
  char sync[2];
};

std::string text(const Thread& thread, unsigned index) {
  const std::string who = "thread " + std::to_string(index);
  if (thread.state == State::Done) return who + " is done";
  return who + " waits in " + thread.place.function + " (" + thread.place.file + ":" +
         std::to_string(thread.place.line) + ")";
}

bool same(const Place& a, const Place& b) {
  return a.line == b.line && (a.file == b.file || std::strcmp(a.file, b.file) == 0);
}

struct SharedMemory {
  explicit SharedMemory(size_t count) : bytes(count) {
    if (bytes == 0) return;
    data = static_cast<std::byte*>(::operator new (bytes, std::align_val_t{128}));
    std::memset(data, 0xff, bytes);  // NaN in every float type
  }
  ~SharedMemory() { ::operator delete (data, std::align_val_t{128}); }
  SharedMemory(const SharedMemory&) = delete;
  SharedMemory& operator=(const SharedMemory&) = delete;

  const size_t bytes;
  std::byte* data = nullptr;
};

/// Runs one block after another on the OS thread that owns it.
class BlockRunner {
 public:
  void run_block(const GridShape& shape, const uint3& block, const std::function<void()>& run);

  // Called for the running thread of a block.
  Thread& self() { return threads_[current_]; }
  unsigned index() const { return current_; }
  Warp& warp() { return warps_[current_ / kWarp]; }
  SharedMemory* shared = nullptr;

  void wait(State state, const Place& place) {
    const unsigned me = current_;
    threads_[me].state = state;
    threads_[me].place = place;
    threads_[me].fiber->leave();
    current_ = me;
  }
  char* block_sync() { return &block_sync_[self().num_block_waits++ % 2]; }

 private:
  struct Slot {
    BlockRunner* runner = nullptr;
    std::unique_ptr<Fiber> fiber;
  };

  [[noreturn]] static void live(void* slot);
  void run_threads(Slot& slot);
  void start_all();
  void resume(unsigned first, unsigned count);
  bool meet_warp(unsigned first);
  bool meet_block();
  [[noreturn]] void fail(const char* what, unsigned one, unsigned other);
  Slot& free_slot();
  unsigned number(unsigned i) const { return backwards_ ? num_threads_ - 1 - i : i; }
  void prepare(unsigned thread) {
    current_ = thread;
    threadIdx = threads_[thread].index;
  }

  std::vector<std::unique_ptr<Slot>> slots_;  // the first num_busy_ have waiting threads
  size_t num_busy_ = 0;
  std::vector<Thread> threads_;
  std::vector<Warp> warps_;
  const std::function<void()>* run_ = nullptr;
  std::exception_ptr error_;
  unsigned num_threads_ = 0, num_started_ = 0, current_ = 0;
  char block_sync_[2] = {}, begin_ = 0, end_ = 0;
};

BlockRunner& runner() {
  static thread_local BlockRunner one;
  return one;
}

void BlockRunner::live(void* slot) {
  for (;;) {
    Slot& s = *static_cast<Slot*>(slot);
    s.runner->run_threads(s);
    s.fiber->leave();
  }
}

/// Runs threads that have not begun, one after the other, until one waits.
void BlockRunner::run_threads(Slot& slot) {
  do {
    const unsigned me = number(num_started_++);
    threads_[me].fiber = slot.fiber.get();
    const dim3& b = blockDim;
    threads_[me].index = {me % b.x, me / b.x % b.y, me / b.x / b.y};
    prepare(me);
    __tsan_acquire(&begin_);
    try {
      (*run_)();
    } catch (...) {
      error_ = std::current_exception();
    }
    __tsan_release(&end_);
    threads_[me].state = State::Done;
  } while (!kFiberEach && num_started_ < num_threads_);
}

BlockRunner::Slot& BlockRunner::free_slot() {
  if (num_busy_ == slots_.size()) {
    auto slot = std::make_unique<Slot>();
    slot->runner = this;
    slot->fiber = std::make_unique<Fiber>(&BlockRunner::live, slot.get());
    slots_.push_back(std::move(slot));
  }
  return *slots_[num_busy_++];
}

void BlockRunner::start_all() {
  num_busy_ = 0;
  while (num_started_ < num_threads_) free_slot().fiber->enter();
}

void BlockRunner::resume(unsigned first, unsigned count) {
  for (unsigned i = 0; i < count; ++i) {
    const unsigned thread = backwards_ ? first + count - 1 - i : first + i;
    prepare(thread);
    threads_[thread].fiber->enter();
  }
}

void BlockRunner::fail(const char* what, unsigned one, unsigned other) {
  const std::string message = std::string(what) + " in block " + std::to_string(blockIdx.x) + ": " +
                              text(threads_[one], one) + ", " + text(threads_[other], other);
  slots_.clear();  // frees the stacks of waiting threads
  // A thread that ended with an error is the reason why the others do not meet it.
  if (error_ != nullptr) std::rethrow_exception(std::exchange(error_, nullptr));
  throw DivergentBarrier(message);
}

/// If all lanes of this warp wait at the same place, lets them continue and returns true.
bool BlockRunner::meet_warp(unsigned first) {
  unsigned waiting = num_threads_;
  for (unsigned i = first; i < first + kWarp; ++i) {
    if (threads_[i].state == State::WaitsForWarp) waiting = i;
  }
  if (waiting == num_threads_) return false;
  for (unsigned i = first; i < first + kWarp; ++i) {
    if (threads_[i].state != State::WaitsForWarp ||
        !same(threads_[i].place, threads_[waiting].place)) {
      fail("lanes of a warp diverge", waiting, i);
    }
  }
  resume(first, kWarp);
  return true;
}

bool BlockRunner::meet_block() {
  unsigned waiting = num_threads_;
  for (unsigned i = 0; i < num_threads_; ++i) {
    if (threads_[i].state == State::WaitsForBlock) waiting = i;
  }
  if (waiting == num_threads_) return false;
  for (unsigned i = 0; i < num_threads_; ++i) {
    if (threads_[i].state != State::WaitsForBlock ||
        !same(threads_[i].place, threads_[waiting].place)) {
      fail("threads of a block diverge", waiting, i);
    }
  }
  resume(0, num_threads_);
  return true;
}

void BlockRunner::run_block(const GridShape& shape, const uint3& block,
                            const std::function<void()>& run) {
  SharedMemory memory(shape.shared_bytes);
  shared = &memory;
  blockIdx = block;
  gridDim = shape.grid;
  blockDim = shape.block;
  run_ = &run;
  num_threads_ = shape.block.x * shape.block.y * shape.block.z;
  num_started_ = 0;
  threads_.assign(num_threads_, {});
  warps_.resize(num_threads_ / kWarp);
  __tsan_release(&begin_);
  start_all();
  do {
    for (unsigned first = 0; first < num_threads_; first += kWarp) {
      while (meet_warp(first)) {
      }
    }
  } while (meet_block());
  __tsan_acquire(&end_);
  if (error_ != nullptr) std::rethrow_exception(std::exchange(error_, nullptr));
}

}  // namespace

void set_backwards(bool backwards) { backwards_ = backwards; }

bool is_launchable(const GridShape& shape) {
  const auto volume = [](const dim3& d) { return uint64_t{d.x} * d.y * d.z; };
  const uint64_t threads = volume(shape.block);
  return volume(shape.grid) > 0 && shape.grid.x <= INT32_MAX && shape.grid.y < 65536 &&
         shape.grid.z < 65536 && threads > 0 && threads <= kMostThreads && threads % kWarp == 0 &&
         shape.shared_bytes <= kMostSharedBytes;
}

void run_grid(const GridShape& shape, const std::function<void()>& run) {
  const dim3& g = shape.grid;
  const int64_t count = int64_t{g.x} * g.y * g.z;
  deal(count, [&](int64_t i) {
    const auto n = static_cast<uint64_t>(backwards_ ? count - 1 - i : i);
    const uint3 block = {static_cast<unsigned>(n % g.x), static_cast<unsigned>(n / g.x % g.y),
                         static_cast<unsigned>(n / g.x / g.y)};
    runner().run_block(shape, block, run);
  });
}

void wait_for_block(const Place& place) {
  BlockRunner& r = runner();
  char* sync = r.block_sync();
  __tsan_release(sync);
  r.wait(State::WaitsForBlock, place);
  __tsan_acquire(sync);
}

void wait_for_warp(const Place& place) {
  BlockRunner& r = runner();
  char* sync = &r.warp().sync[r.self().num_warp_waits++ % 2];
  __tsan_release(sync);
  r.wait(State::WaitsForWarp, place);
  __tsan_acquire(sync);
}

int lane() { return static_cast<int>(runner().index() % kWarp); }

void check_alignment(const void* address, size_t alignment) {
  if (reinterpret_cast<uintptr_t>(address) % alignment == 0) return;
  std::ostringstream message;
  message << "a kernel accesses " << alignment << " bytes together at " << address
          << ", which is no multiple of " << alignment;
  throw MisalignedAccess(message.str());
}

std::byte* dynamic_shared_memory() { return runner().shared->data; }

const Brought* gather(const Place& place, const Brought& brought) {
  BlockRunner& r = runner();
  auto& all = r.warp().brought[r.self().num_meetings++ % 2];
  all[r.index() % kWarp] = brought;
  r.wait(State::WaitsForWarp, place);
  return all;
}

uint64_t exchange(const Place& place, unsigned mask, uint64_t value, int from) {
  if (mask != 0xffffffffu) throw std::logic_error("a shuffle leaves lanes out");
  const Brought* all = gather(place, Brought::of(value));
  return from < 0 || from >= static_cast<int>(kWarp) ? value : all[from].as<uint64_t>();
}

unsigned ballot(const Place& place, unsigned mask, bool predicate) {
  if (mask != 0xffffffffu) throw std::logic_error("a ballot leaves lanes out");
  const Brought* all = gather(place, Brought::of(predicate));
  unsigned bits = 0;
  for (unsigned i = 0; i < kWarp; ++i) bits |= (all[i].as<bool>() ? 1u : 0u) << i;
  return bits;
}

}  // namespace ebb::emulation
