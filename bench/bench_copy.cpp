// Is the copy of a 64 MiB chunk at the roof?
//
//   bench_copy [chunks each way = 12]
//
// Copies between chunks that lie in no cache, with 1 and 2 threads: those of the host device (a
// thread for each direction of its link), libc's memcpy, and the conversions between fp32 and 16
// bits that move as much. The roof is a triad with streaming stores, which reads two arrays and
// writes a third without reading it: its bytes a second are what memory gives to such streams. All
// in turn in one process (rounds.h), medians; every result is verified.
#include <sys/mman.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "bench/rounds.h"
#include "cpu_adam/master.h"
#include "system/copy.h"
#include "system/thread_team.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "bench/bench_copy.cpp"
// The order matters: foreach_target.h compiles what follows it once for each instruction set.
// clang-format off
#include "hwy/cache_control.h"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "system/cores.h"
// clang-format on

HWY_BEFORE_NAMESPACE();
namespace ebb::bench {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// c = a xor b. REQUIRES: aligned to 64 bytes, n a multiple of 64.
void triad(uint64_t* c, const uint64_t* a, const uint64_t* b, size_t n) {
  const hn::ScalableTag<uint64_t> d;
  for (size_t i = 0; i < n; i += hn::Lanes(d)) {
    hn::Stream(hn::Xor(hn::Load(d, a + i), hn::Load(d, b + i)), d, c + i);
  }
  hwy::FlushStream();
}

}  // namespace HWY_NAMESPACE
}  // namespace ebb::bench
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#include <fmt/core.h>

namespace ebb::bench {
namespace {

HWY_EXPORT(triad);

constexpr size_t kChunkBytes = size_t{64} << 20;
constexpr size_t kWords = kChunkBytes / sizeof(uint64_t);

/// Chunks in huge pages where the system gives them, filled with finite fp32 that differ.
class Chunks {
 public:
  explicit Chunks(size_t count) : bytes_(count * kChunkBytes) {
    void* const data =
        mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (data == MAP_FAILED) {
      fmt::print(stderr, "no memory for {} bytes; give fewer chunks\n", bytes_);
      std::exit(2);
    }
    madvise(data, bytes_, MADV_HUGEPAGE);
    data_ = static_cast<std::byte*>(data);
    auto* const words = reinterpret_cast<uint32_t*>(data_);
    for (size_t i = 0; i < bytes_ / 4; ++i) {
      words[i] = static_cast<uint32_t>(i * 2654435761u) & 0xbfffffffu;
    }
  }
  ~Chunks() { munmap(data_, bytes_); }
  Chunks(const Chunks&) = delete;
  Chunks& operator=(const Chunks&) = delete;

  size_t count() const { return bytes_ / kChunkBytes; }
  std::byte* operator[](size_t i) const { return data_ + i % count() * kChunkBytes; }
  template <class T>
  T* as(size_t i) const {
    return reinterpret_cast<T*>((*this)[i]);
  }

 private:
  size_t bytes_;
  std::byte* data_;
};

struct Work {
  const char* name;
  double moved_bytes;  // to and from memory, for one chunk
  void (*run)(const Chunks& to, const Chunks& from, size_t i);
  bool (*right)(const Chunks& to, const Chunks& from, size_t i);
};

bool same_chunk(const Chunks& to, const Chunks& from, size_t i) {
  return std::memcmp(to[i], from[i], kChunkBytes) == 0;
}

// A chunk of masters against half a chunk each of weights and low halves.
constexpr size_t kMasters = kChunkBytes / sizeof(float);

void split(const Chunks& to, const Chunks& from, size_t i) {
  split_masters({from.as<float>(i), kMasters}, {to.as<BF16>(i), kMasters},
                {to.as<int16_t>(i) + kMasters, kMasters});
}
bool is_split(const Chunks& to, const Chunks& from, size_t i) {
  for (size_t k = 0; k < kMasters; k += 997) {
    const SplitMaster master = split_master(from.as<uint32_t>(i)[k]);
    if (to.as<uint16_t>(i)[k] != master.weight || to.as<int16_t>(i)[kMasters + k] != master.low) {
      return false;
    }
  }
  return true;
}
void join(const Chunks& to, const Chunks& from, size_t i) {
  join_masters({from.as<BF16>(i), kMasters}, {from.as<int16_t>(i) + kMasters, kMasters},
               {to.as<float>(i), kMasters});
}
bool is_joined(const Chunks& to, const Chunks& from, size_t i) {
  for (size_t k = 0; k < kMasters; k += 997) {
    const SplitMaster split{from.as<uint16_t>(i)[k], from.as<int16_t>(i)[kMasters + k]};
    if (to.as<uint32_t>(i)[k] != join_master(split)) return false;
  }
  return true;
}

const Work kWorks[] = {
    {"triad (the roof)", 3.0 * kChunkBytes,
     [](const Chunks& to, const Chunks& from, size_t i) {
       HWY_DYNAMIC_DISPATCH(triad)
       (to.as<uint64_t>(i), from.as<uint64_t>(i), from.as<uint64_t>(i + 1), kWords);
     },
     [](const Chunks& to, const Chunks& from, size_t i) {
       const size_t k = kWords - 1;
       return to.as<uint64_t>(i)[k] == (from.as<uint64_t>(i)[k] ^ from.as<uint64_t>(i + 1)[k]);
     }},
    {"copy of a chunk", 2.0 * kChunkBytes,
     [](const Chunks& to, const Chunks& from, size_t i) {
       copy_bytes(to[i], from[i], kChunkBytes);
     },
     same_chunk},
    {"libc memcpy", 2.0 * kChunkBytes,
     [](const Chunks& to, const Chunks& from, size_t i) {
       std::memcpy(to[i], from[i], kChunkBytes);
     },
     same_chunk},
    {"fp32 -> bf16 + low", 2.0 * kChunkBytes, split, is_split},
    {"bf16 + low -> fp32", 2.0 * kChunkBytes, join, is_joined},
};

bool report(int threads, const Chunks& to, const Chunks& from) {
  ThreadTeam team(threads);
  const auto count = static_cast<int64_t>(to.count());
  const auto pass = [&](const Work& work) {
    team.for_each(count, [&](int64_t i) { work.run(to, from, static_cast<size_t>(i)); });
  };
  std::vector<Sample> samples;
  for (const Work& work : kWorks) {
    pass(work);
    for (size_t i = 0; i < to.count(); ++i) {
      if (work.right(to, from, i)) continue;
      fmt::print("{}: WRONG RESULTS\n", work.name);
      return false;
    }
    samples.push_back([&] { return seconds_of([&] { pass(work); }) / static_cast<double>(count); });
  }
  const Rounds rounds = measure_rounds(samples);
  const double roof_bytes_per_s = kWorks[0].moved_bytes / rounds.median(0);
  for (size_t i = 0; i < samples.size(); ++i) {
    const double bound_s = kWorks[i].moved_bytes / roof_bytes_per_s;
    fmt::print("{:>7} {:<20} {:>10.2f} {:>10.2f} {:>10.1f} {:>7.1f} % {:>10.2f}   {} {} rounds\n",
               threads, kWorks[i].name, 1e3 * bound_s, 1e3 * rounds.median(i),
               1e-9 * kWorks[i].moved_bytes / rounds.median(i),
               100 * rounds.ratio(0, i) * kWorks[i].moved_bytes / kWorks[0].moved_bytes,
               rounds.ratio(2, i) * kWorks[i].moved_bytes / kWorks[2].moved_bytes,
               rounds.seconds.size(), rounds.quiet ? "quiet" : "LOUD (others used the cores)");
  }
  return true;
}

}  // namespace

int bench_main(int argc, char** argv) {
  const int chunks = argc > 1 ? std::atoi(argv[1]) : 12;
  if (chunks < 2) {
    fmt::print(stderr, "usage: bench_copy [chunks each way, at least 2]\n");
    return 2;
  }
  const Chunks from(static_cast<size_t>(chunks)), to(static_cast<size_t>(chunks));
  fmt::print("chunks of 64 MiB, {} each way; bytes are those read and written\n", chunks);
  fmt::print("{:>7} {:<20} {:>10} {:>10} {:>10} {:>9} {:>10}\n", "threads", "what", "bound ms",
             "ms", "GB/s", "share", "x memcpy");
  for (int threads = 1; threads <= std::min(2, num_usable_cores()); ++threads) {
    if (!report(threads, to, from)) return 1;
  }
  return 0;
}

}  // namespace ebb::bench

int main(int argc, char** argv) { return ebb::bench::bench_main(argc, argv); }
#endif
