#include "tests/comm/rank_cases.h"

#include <fmt/format.h>

#include <string>
#include <string_view>

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

// The memory of rank 0 is a counter that all ranks add to, one after the other, as plain memory:
// ThreadSanitizer reports a missing order as a race.
void check_ring(Ranks& ranks) {
  constexpr uint32_t kRounds = 300;
  const std::vector<std::byte*> memory = ranks.share(ranks.rank() == 0 ? 64 : 0);
  ranks.create_signals(3);
  const uint32_t size = ranks.size(), before = (ranks.rank() + size - 1) % size;
  uint32_t& counter = *reinterpret_cast<uint32_t*>(memory[0]);
  for (uint32_t round = 1; round <= kRounds; ++round) {
    if (ranks.rank() != 0) ranks.wait(before, 1, round);
    if (ranks.rank() == 0 && round > 1) ranks.wait(before, 1, round - 1);
    const uint32_t expected = (round - 1) * size + ranks.rank();
    expect(counter == expected, fmt::format("counter {}, is {}", expected, counter));
    ++counter;
    ranks.raise(1, round);
  }
  ranks.wait(size - 1, 1, kRounds);
  expect(counter == kRounds * size, "the final count");
}

}  // namespace ebb::test
