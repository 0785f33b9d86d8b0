#include "tests/comm/rank_cases.h"

#include <fmt/format.h>

#include <cstring>
#include <functional>
#include <random>
#include <string>
#include <string_view>
#include <thread>

namespace ebb::test {
namespace {

void expect(bool holds, std::string_view what) {
  if (!holds) throw Error("expected: " + std::string(what));
}

// Differs between ranks, rounds and positions.
std::byte byte_of(uint32_t rank, uint32_t round, size_t i) {
  return static_cast<std::byte>(37 * rank + 11 * round + i + (i >> 8) * 5);
}

void fill(std::span<std::byte> bytes, uint32_t rank, uint32_t round) {
  for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = byte_of(rank, round, i);
}

void expect_filled(std::span<const std::byte> bytes, uint32_t rank, uint32_t round) {
  size_t i = 0;
  while (i < bytes.size() && bytes[i] == byte_of(rank, round, i)) ++i;
  expect(i == bytes.size(), fmt::format("round {}: byte {} of rank {}", round, i, rank));
}

}  // namespace

void check_exchange(Ranks& ranks) {
  constexpr size_t kSizes[] = {8, 0, 1, 16383, 16384, 16385, 3 * 16384, 100003};
  for (uint32_t round = 0; round < 200; ++round) {
    const size_t n = round < 24 ? kSizes[round % 8] : 8;
    std::vector<std::byte> mine(n), all(n * ranks.size(), std::byte{0xee});
    fill(mine, ranks.rank(), round);
    ranks.exchange(mine, all);
    for (uint32_t r = 0; r < ranks.size(); ++r) {
      expect_filled(std::span(all).subspan(r * n, n), r, round);
    }
  }
}

void check_share(Ranks& ranks) {
  uint32_t round = 0;
  for (const size_t base : {0, 1, 4096, 50000}) {
    ++round;
    const size_t bytes = base * (ranks.rank() + 1);
    const std::vector<std::byte*> memory = ranks.share(bytes);
    expect(memory.size() == ranks.size(), "memory of each rank");
    const std::span mine(memory[ranks.rank()], bytes);
    for (const std::byte b : mine) expect(b == std::byte{0}, "zeroed memory");
    fill(mine, ranks.rank(), round);
    ranks.exchange({}, {});  // all have written
    std::vector<std::byte> copies(base * ranks.size() * (ranks.size() + 1) / 2 + ranks.size());
    std::vector<RemotePart> parts;
    std::span<std::byte> left(copies);
    for (uint32_t r = 0; r < ranks.size(); ++r) {
      expect((memory[r] != nullptr) == ranks.is_near(r), "an address of each rank of the machine");
      if (memory[r] != nullptr) expect_filled({memory[r], base * (r + 1)}, r, round);
      // Two parts of each rank, of which the second may be empty.
      const size_t of_rank = base * (r + 1), half = of_rank / 2;
      parts.push_back({r, half, left.subspan(half, of_rank - half)});
      parts.push_back({r, 0, left.first(half)});
      left = left.subspan(of_rank);
    }
    ranks.read(parts);
    for (uint32_t r = 0; r < ranks.size(); ++r) {
      expect_filled({parts[2 * r + 1].into.data(), base * (r + 1)}, r, round);
    }
    ranks.exchange({}, {});  // all have read
  }
}

// Each rank has a counter in plain memory, which it sets to that of the rank before it plus one:
// ThreadSanitizer reports a missing order as a race.
void check_ring(Ranks& ranks) {
  constexpr uint32_t kRounds = 300;
  const std::vector<std::byte*> memory = ranks.share(64);
  ranks.create_signals(3);
  const uint32_t size = ranks.size(), before = (ranks.rank() + size - 1) % size;
  const auto counter_of = [&](uint32_t rank) {
    if (ranks.is_near(rank)) return *reinterpret_cast<const uint32_t*>(memory[rank]);
    uint32_t counter = 0;
    const RemotePart part = {rank, 0, std::as_writable_bytes(std::span(&counter, 1))};
    ranks.read({&part, 1});
    return counter;
  };
  for (uint32_t round = 1; round <= kRounds; ++round) {
    if (ranks.rank() != 0) ranks.wait(before, 1, round);
    if (ranks.rank() == 0 && round > 1) ranks.wait(before, 1, round - 1);
    const uint32_t expected = (round - 1) * size + ranks.rank(), counter = counter_of(before);
    expect(counter == expected, fmt::format("counter {}, is {}", expected, counter));
    *reinterpret_cast<uint32_t*>(memory[ranks.rank()]) = counter + 1;
    ranks.raise(1, round);
  }
  ranks.wait(size - 1, 1, kRounds);
  expect(counter_of(size - 1) == kRounds * size, "the final count");
  ranks.exchange({}, {});  // all have read
}

void check_reads_of_threads(Ranks& ranks) {
  constexpr size_t kBytes = 2'500'001;
  constexpr uint32_t kThreads = 4;
  const std::vector<std::byte*> memory = ranks.share(kBytes);
  fill({memory[ranks.rank()], kBytes}, ranks.rank(), 0);
  ranks.exchange({}, {});  // all have written
  std::vector<std::vector<std::byte>> expected(ranks.size(), std::vector<std::byte>(kBytes));
  for (uint32_t r = 0; r < ranks.size(); ++r) fill(expected[r], r, 0);
  const auto read = [&](uint32_t thread) {
    std::mt19937 random(100 * ranks.rank() + thread);
    for (uint32_t round = 0; round < 5; ++round) {
      std::vector<std::vector<std::byte>> copies;  // each with a byte before and after the part
      std::vector<RemotePart> parts;
      for (uint32_t i = 0; i < 8; ++i) {
        const size_t begin = random() % kBytes, n = random() % (kBytes - begin + 1);
        copies.emplace_back(n + 2, std::byte{0xee});
        parts.push_back({static_cast<uint32_t>(random() % ranks.size()), begin,
                         std::span(copies.back()).subspan(1, n)});
      }
      ranks.read(parts);
      for (uint32_t i = 0; i < 8; ++i) {
        const auto& [of, offset, into] = parts[i];
        expect(std::memcmp(into.data(), expected[of].data() + offset, into.size()) == 0,
               "the bytes of the part");
        expect(copies[i].front() == std::byte{0xee} && copies[i].back() == std::byte{0xee},
               "nothing beside the part changes");
      }
    }
  };
  std::string errors[kThreads];
  std::vector<std::thread> threads;
  for (uint32_t t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      try {
        read(t);
      } catch (const std::exception& error) {
        errors[t] = error.what();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const std::string& error : errors) expect(error.empty(), error);
  ranks.exchange({}, {});  // all have read
}

void check_disagreements(Ranks& ranks) {
  const uint32_t size = ranks.size();
  std::byte bytes[64] = {};
  std::vector<std::byte> all(64 * size);
  const auto expect_error = [&](const std::function<void()>& call, const std::string& text) {
    for (int i = 0; i < 2; ++i) {  // afterwards the ranks agree about the number of their calls
      try {
        call();
      } catch (const LogicError& error) {
        expect(std::string_view(error.what()).find(text) != std::string_view::npos,
               fmt::format("'{}' in '{}'", text, error.what()));
        continue;
      }
      throw Error("no error: " + text);
    }
  };
  const uint32_t odd = size - 1;
  const bool is_odd = ranks.rank() == odd;
  expect_error(
      [&] {
        const size_t n = is_odd ? 3 : 4;
        ranks.exchange(std::span(bytes, n), std::span(all).first(size * n));
      },
      fmt::format("rank {} calls exchange() with 3 bytes, rank 0 exchange() with 4 bytes", odd));
  expect_error(
      [&] {
        ranks.exchange(std::span(bytes, 4), std::span(all).first(size * 4 - (is_odd ? 1 : 0)));
      },
      fmt::format("rank {} calls exchange() with an output of a wrong size", odd));
  expect_error(
      [&] {
        if (is_odd) ranks.share(10);
        if (!is_odd) ranks.exchange(std::span(bytes, 8), std::span(all).first(size * 8));
      },
      fmt::format("rank {} calls share() with 8 bytes, rank 0 exchange() with 8 bytes", odd));
  expect_error([&] { ranks.create_signals(is_odd ? 5 : 4); },
               fmt::format("rank {} creates 5 signals, rank 0 creates 4", odd));
}

}  // namespace ebb::test
