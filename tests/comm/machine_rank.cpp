// A rank that test_machine_ranks.py starts under mpirun. Usage:
//   machine_rank CASE RANKS_PER_MACHINE TIMEOUT_S SILENCE_S
// Prints "rank R joined, process P", and "rank R ends" or "rank R: ERROR". Exit code: 0, or 1 after
// an error.
#include <fmt/format.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <exception>
#include <memory>
#include <string_view>
#include <vector>

#include "comm/process_ranks.h"
#include "system/clock.h"
#include "tests/comm/rank_cases.h"

namespace ebb::test {
namespace {

void say(const std::string& line) {
  std::puts(line.c_str());
  std::fflush(stdout);
}

// Until another rank is lost. Uses all that waits.
void work_for_ever(Ranks& ranks) {
  constexpr size_t kBytes = 3 << 20;
  const uint32_t before = (ranks.rank() + ranks.size() - 1) % ranks.size();
  std::vector<std::byte> mine(20000), all(mine.size() * ranks.size()), copy(kBytes);
  const RemotePart part = {before, 0, copy};
  ranks.create_signals(1);
  ranks.share(kBytes);
  say(fmt::format("rank {} works", ranks.rank()));
  for (uint32_t step = 1;; ++step) {
    ranks.exchange(mine, all);
    ranks.read({&part, 1});
    ranks.raise(0, step);
    ranks.wait(before, 0, step);
  }
}

constexpr double kPacedBytesPerS = 20e6;

/// All other ranks copy 4 MB from rank 0: together they take as long as its network sends them.
void check_pace(Ranks& ranks) {
  constexpr size_t kBytes = 4'000'000;
  std::vector<std::byte> copy(kBytes);
  const RemotePart part = {0, 0, copy};
  const double begin_s = steady_now_s();  // no rank reads before this one has called share()
  ranks.share(kBytes);
  if (ranks.rank() > 0) ranks.read({&part, 1});
  ranks.exchange({}, {});  // all have read
  const double least_s = (ranks.size() - 1) * kBytes / kPacedBytesPerS;
  const double seconds = steady_now_s() - begin_s;
  if (seconds < least_s || seconds > 3 * least_s + 1) {
    throw Error(fmt::format("{} s, at least {} s", seconds, least_s));
  }
}

void run(std::string_view name, Ranks& ranks) {
  const uint32_t last = ranks.size() - 1;
  if (name == "cases") {
    check_exchange(ranks);
    check_share(ranks);
    check_reads_of_threads(ranks);
    check_ring(ranks);
  } else if (name == "paced") {
    check_pace(ranks);
  } else if (name == "disagreements") {
    check_disagreements(ranks);
  } else if (name == "work") {
    work_for_ever(ranks);
  } else if (name == "wait") {  // for the last rank, which computes
    ranks.create_signals(1);
    if (ranks.rank() != last) return ranks.wait(last, 0, 1);
    sleep_until(steady_now_s() + 1.5);
    ranks.raise(0, 1);
  } else if (name == "stuck") {
    ranks.create_signals(1);
    if (ranks.rank() != last) return ranks.wait(last, 0, 1);
    sleep_until(steady_now_s() + 12);
  } else if (name == "leave") {
    const std::vector<std::byte*> memory = ranks.share(5);
    memory[ranks.rank()][4] = std::byte{7};
    ranks.create_signals(2);
    ranks.raise(1, 9);
    if (ranks.rank() == last) return;
    sleep_until(steady_now_s() + 0.5);
    ranks.wait(last, 1, 9);
    std::byte copy{0};
    const RemotePart part = {last, 4, {&copy, 1}};
    ranks.read({&part, 1});
    if (copy != std::byte{7}) throw Error("another byte");
    ranks.wait(last, 0, 1);
  } else if (name == "fail") {
    ranks.create_signals(1);
    if (ranks.rank() != last) return ranks.wait(last, 0, 1);
    sleep_until(steady_now_s() + 0.1);
    throw Error("out of luck");
  } else {
    throw Error("no such case");
  }
}

int as_rank(char** argv) {
  const char* const rank = std::getenv("OMPI_COMM_WORLD_RANK");
  std::unique_ptr<Ranks> ranks;
  try {
    if (std::string_view(argv[1]) == "missing" && std::string_view(rank) == "1") {
      sleep_until(steady_now_s() + 20);
      return 0;
    }
    ranks = join_ranks_of_environment(
        {.timeout_s = std::atof(argv[3]),
         .silence_s = std::atof(argv[4]),
         .transport = RankTransport::Mpi,
         .ranks_per_machine = static_cast<uint32_t>(std::atoi(argv[2])),
         .network_bytes_per_s = std::string_view(argv[1]) == "paced" ? kPacedBytesPerS : 0});
    say(fmt::format("rank {} joined, process {}", rank, getpid()));
    run(argv[1], *ranks);
    say(fmt::format("rank {} ends", rank));
    return 0;
  } catch (const std::exception& error) {
    say(fmt::format("rank {}: {}", rank, error.what()));
    if (ranks != nullptr) ranks->fail(error.what());
    return 1;
  }
}

}  // namespace
}  // namespace ebb::test

int main(int argc, char** argv) { return argc == 5 ? ebb::test::as_rank(argv) : 2; }
