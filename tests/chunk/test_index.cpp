// Indices of different things do not mix.
#include <gtest/gtest.h>

#include <type_traits>
#include <vector>

#include "chunk/index.h"

namespace ebb {
namespace {

template <class A, class B>
concept Comparable = requires(A a, B b) { a == b; } || requires(A a, B b) { a != b; } ||
                     requires(A a, B b) { a < b; } || requires(A a, B b) { a <= b; };

static_assert(!std::is_assignable_v<ChunkIndex&, FlatIndex>);
static_assert(!std::is_constructible_v<ChunkIndex, FlatIndex>);
static_assert(!Comparable<ChunkIndex, FlatIndex>);
static_assert(!Comparable<FlatIndex, ChunkIndex>);

// A number becomes an index only by name.
static_assert(!std::is_assignable_v<ChunkIndex&, uint32_t>);
static_assert(!std::is_convertible_v<uint32_t, ChunkIndex>);

static_assert(Comparable<ChunkIndex, ChunkIndex>);
static_assert(Comparable<ChunkIndex, size_t>);
static_assert(Comparable<ChunkIndex, NoIndex>);

// An index costs no more than a number.
static_assert(sizeof(ChunkIndex) == sizeof(uint32_t));
static_assert(std::is_trivially_copyable_v<ChunkIndex>);

TEST(Index, IsANumberOrNone) {
  ChunkIndex chunk;
  EXPECT_EQ(chunk, kNone);
  chunk = ChunkIndex(7);
  EXPECT_NE(chunk, kNone);
  EXPECT_EQ(chunk, 7u);
  EXPECT_EQ(chunk++, ChunkIndex(7));
  EXPECT_EQ(++chunk, ChunkIndex(9));
  EXPECT_LT(chunk, ChunkIndex(kNone));
  const std::vector<int> numbers(10, 3);
  EXPECT_EQ(numbers[chunk], 3);
}

}  // namespace
}  // namespace ebb
