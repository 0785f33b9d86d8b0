// Is the copy of a 64 MiB chunk as fast as memory allows?
//
//   bench_copy [chunks each way = 12] [flags of Google Benchmark]
//
// Copies between chunks that are not in a cache, with 1 and with 2 threads: the copy of the host
// device (one thread for each direction of its link), libc's memcpy, and the conversions between
// fp32 and 16 bits that move the same number of bytes. The roof is a triad with streaming stores:
// it reads two arrays and writes a third without reading it, on the same chunks. Bound and achieved
// are bytes read and written a second, the time is that of a pass over all chunks. After each run
// all chunks are verified.
#include <algorithm>
#include <cstring>
#include <string>

#include "bench/huge_pages.h"
#include "bench/micro_benchmark.h"
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
namespace ebb::bench {
namespace {

HWY_EXPORT(triad);

constexpr size_t kChunkBytes = size_t{64} << 20;
constexpr size_t kWords = kChunkBytes / sizeof(uint64_t);

/// Chunks filled with finite fp32 that differ.
class Chunks {
 public:
  explicit Chunks(size_t count) : count_(count), memory_(count * kChunkBytes) {
    auto* const words = reinterpret_cast<uint32_t*>(memory_.data());
    for (size_t i = 0; i < count * kChunkBytes / 4; ++i) {
      words[i] = static_cast<uint32_t>(i * 2654435761u) & 0xbfffffffu;
    }
  }
  size_t count() const { return count_; }
  std::byte* operator[](size_t i) const { return memory_.data() + i % count_ * kChunkBytes; }
  template <class T>
  T* as(size_t i) const {
    return reinterpret_cast<T*>((*this)[i]);
  }

 private:
  size_t count_;
  HugePages memory_;
};

/// A function that copies or converts one chunk to another.
struct Way {
  const char* name;
  void (*run)(const Chunks& to, const Chunks& from, size_t i);
  bool (*is_right)(const Chunks& to, const Chunks& from, size_t i);
};

bool is_copy(const Chunks& to, const Chunks& from, size_t i) {
  return std::memcmp(to[i], from[i], kChunkBytes) == 0;
}

// A chunk of masters corresponds to half a chunk of weights and half a chunk of low halves.
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

constexpr Way kWays[] = {
    {"copy of a chunk",
     [](const Chunks& to, const Chunks& from, size_t i) {
       copy_bytes(to[i], from[i], kChunkBytes);
     },
     is_copy},
    {"libc memcpy",
     [](const Chunks& to, const Chunks& from, size_t i) {
       std::memcpy(to[i], from[i], kChunkBytes);
     },
     is_copy},
    {"fp32 to bf16 and low half", split, is_split},
    {"bf16 and low half to fp32", join, is_joined},
};

struct BothWays {
  explicit BothWays(size_t count) : to(count), from(count) {}
  Chunks to, from;
};

void measure(benchmark::State& state, const Way& way, int num_threads, const BothWays& chunks) {
  const auto& [to, from] = chunks;
  ThreadTeam team(num_threads);
  const auto for_each_chunk = [&](const auto& body) {
    team.for_each(static_cast<int64_t>(to.count()),
                  [&](int64_t i) { body(static_cast<size_t>(i)); });
  };
  const auto triad = [&](size_t i) {
    HWY_DYNAMIC_DISPATCH(triad)
    (to.as<uint64_t>(i), from.as<uint64_t>(i), from.as<uint64_t>(i + 1), kWords);
  };
  const auto bytes = static_cast<double>(to.count() * kChunkBytes);
  measure_against_roof(
      state, {3 * bytes, [&] { for_each_chunk(triad); }},
      {2 * bytes, [&] { for_each_chunk([&](size_t i) { way.run(to, from, i); }); }});
  for (size_t i = 0; i < to.count(); ++i) {
    if (!way.is_right(to, from, i)) fail(state, "a chunk is not what it should be");
  }
}

void register_all(Arguments arguments) {
  // The triad reads two chunks at once.
  const auto count = static_cast<size_t>(std::max<int64_t>(2, number_in(arguments, 0, 12)));
  const auto chunks = made_once<BothWays>(count);
  for (int threads = 1; threads <= std::min(2, num_usable_cores()); ++threads) {
    for (const Way& way : kWays) {
      register_benchmark(std::string(way.name) + "/threads:" + std::to_string(threads),
                         [=](benchmark::State& state) { measure(state, way, threads, chunks()); });
    }
  }
}

}  // namespace
}  // namespace ebb::bench

int main(int argc, char** argv) {
  return ebb::bench::run_benchmarks(argc, argv, ebb::bench::register_all);
}
#endif
