// How fast do two ranks reach each other through MPI?
//
//   mpirun -n 2 bench_machines [passes = 8]           Ebb's link
//   mpirun -n 2 bench_machines plain [passes = 8]     the same messages without Ebb, by two threads
//   that never sleep
//
// Prints the bandwidth with which rank 0 copies 256 MiB of rank 1 (the median of the passes),
// beside that of memcpy, and the time in which a signal goes to the other rank and another one
// comes back. The plain program sends pieces of the same size, as many at once.
#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <string_view>
#include <vector>

#include "bench/exit_code.h"
#include "comm/machine_link.h"
#include "comm/mpi_library.h"
#include "comm/process_ranks.h"
#include "device/errors.h"
#include "system/clock.h"

namespace ebb::bench {
namespace {

constexpr size_t kBytes = size_t{256} << 20;
constexpr uint32_t kRoundTrips = 2000;

template <class Work>
double median_s(int passes, const Work& work) {
  std::vector<double> seconds;
  for (int i = 0; i < passes; ++i) {
    const double start_s = steady_now_s();
    work();
    seconds.push_back(steady_now_s() - start_s);
  }
  std::nth_element(seconds.begin(), seconds.begin() + passes / 2, seconds.end());
  return seconds[static_cast<size_t>(passes) / 2];
}

std::byte expected(size_t i) { return static_cast<std::byte>(i * 31 + (i >> 16)); }

void fill(std::span<std::byte> bytes) {
  for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = expected(i);
}

void check(std::span<const std::byte> bytes) {
  for (size_t i = 0; i < bytes.size(); ++i) {
    if (bytes[i] != expected(i)) throw Error(fmt::format("byte {} is wrong", i));
  }
}

void print(std::string_view what, double copy_s, double round_trip_s) {
  fmt::print("{:<8} {:6.2f} GB/s  {:8.1f} us there and back\n", what, kBytes / copy_s * 1e-9,
             round_trip_s * 1e6);
}

void measure_link(int passes) {
  const auto ranks = join_ranks_of_environment({.transport = RankTransport::Mpi});
  if (ranks->size() != 2) throw ConfigError("this benchmark has two ranks");
  const bool is_first = ranks->rank() == 0;
  const std::vector<std::byte*> memory = ranks->share(is_first ? 0 : kBytes);
  ranks->create_signals(1);
  std::vector<std::byte> copy(kBytes), other(is_first ? kBytes : 0);
  if (!is_first) fill({memory[1], kBytes});
  ranks->exchange({}, {});
  double copy_s = 0;
  if (is_first) {
    const RemotePart part = {1, 0, copy};
    copy_s = median_s(passes, [&] { ranks->read({&part, 1}); });
    check(copy);
    const double memcpy_s =
        median_s(passes, [&] { std::memcpy(other.data(), copy.data(), kBytes); });
    fmt::print("memcpy   {:6.2f} GB/s\n", kBytes / memcpy_s * 1e-9);
  }
  ranks->exchange({}, {});
  const double start_s = steady_now_s();
  for (uint32_t i = 1; i <= kRoundTrips; ++i) {
    if (is_first) ranks->raise(0, i);
    ranks->wait(1 - ranks->rank(), 0, i);
    if (!is_first) ranks->raise(0, i);
  }
  if (is_first) print("Ebb", copy_s, (steady_now_s() - start_s) / kRoundTrips);
}

/// MPI's functions without a link.
class Plain {
 public:
  Plain() : mpi_(load_mpi_library()) {
    uint32_t size = 0;
    uint64_t run = 0;
    check(mpi_.start(&rank_, &size, &run));
    if (size != 2) throw ConfigError("this benchmark has two ranks");
  }
  ~Plain() { mpi_.finish(); }

  uint32_t rank() const { return rank_; }
  MpiRequest* send(const void* data, size_t bytes) const {
    MpiRequest* request = nullptr;
    check(mpi_.send(1 - rank_, 0, data, bytes, &request));
    return request;
  }
  MpiRequest* receive(void* data, size_t bytes) const {
    MpiRequest* request = nullptr;
    check(mpi_.receive(1 - rank_, 0, data, bytes, &request));
    return request;
  }
  void wait(MpiRequest* request) const {
    uint32_t from = 0;
    for (size_t bytes = 0; request != nullptr;) check(mpi_.test(&request, &from, &bytes));
  }

 private:
  static void check(const char* error) {
    if (error != nullptr) throw Error(error);
  }
  const MpiFunctions& mpi_;
  uint32_t rank_ = 0;
};

void measure_plain(int passes) {
  const Plain mpi;
  std::vector<std::byte> bytes(kBytes);
  if (mpi.rank() == 1) fill(bytes);
  const double copy_s = median_s(passes, [&] {
    std::vector<MpiRequest*> requests;
    for (size_t at = 0, ended = 0; ended < kBytes / MachineLink::kReadBytes;) {
      while (at < kBytes && requests.size() - ended < MachineLink::kReadSlots) {
        requests.push_back(mpi.rank() == 1 ? mpi.send(&bytes[at], MachineLink::kReadBytes)
                                           : mpi.receive(&bytes[at], MachineLink::kReadBytes));
        at += MachineLink::kReadBytes;
      }
      mpi.wait(requests[ended++]);
    }
  });
  check(bytes);
  const double start_s = steady_now_s();
  for (uint32_t i = 1; i <= kRoundTrips; ++i) {
    uint32_t value = i;
    if (mpi.rank() == 0) mpi.wait(mpi.send(&value, sizeof value));
    mpi.wait(mpi.receive(&value, sizeof value));
    if (mpi.rank() == 1) mpi.wait(mpi.send(&value, sizeof value));
  }
  if (mpi.rank() == 0) print("plain", copy_s, (steady_now_s() - start_s) / kRoundTrips);
}

int run(int argc, char** argv) {
  const bool is_plain = argc > 1 && std::string_view(argv[1]) == "plain";
  const char* const passes_text = argc > (is_plain ? 2 : 1) ? argv[argc - 1] : "8";
  const int passes = std::max(1, std::atoi(passes_text));
  is_plain ? measure_plain(passes) : measure_link(passes);
  return 0;
}

}  // namespace
}  // namespace ebb::bench

int main(int argc, char** argv) {
  return ebb::bench::exit_code_of("bench_machines", [&] { return ebb::bench::run(argc, argv); });
}
