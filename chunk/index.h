// Indices of different things, as different types. An index is a 32-bit number or kNone.
//
// An index converts to a number, so it selects an element of a vector and is compared with a size.
// A number becomes an index only explicitly: ChunkIndex(7). To assign an index to one of another
// kind, or to compare the two, does not compile.
#pragma once

#include <compare>
#include <concepts>
#include <cstdint>

namespace ebb {

/// The type of kNone.
struct NoIndex {
  constexpr operator uint32_t() const { return UINT32_MAX; }
};
/// "No index", for all kinds of indices.
inline constexpr NoIndex kNone;

template <class Tag>
class Index {
 public:
  constexpr Index(NoIndex none = kNone) : value_(none) {}
  /// REQUIRES: the number fits in 32 bits.
  constexpr explicit Index(std::integral auto number) : value_(static_cast<uint32_t>(number)) {}
  template <class Other>
  Index(Index<Other>) = delete;

  constexpr operator uint32_t() const { return value_; }
  constexpr Index& operator++() {
    ++value_;
    return *this;
  }
  constexpr Index operator++(int) { return Index(value_++); }

  friend constexpr auto operator<=>(Index, Index) = default;

 private:
  uint32_t value_;
};

// Without these functions, indices of two kinds would be compared as numbers.
template <class A, class B>
bool operator==(Index<A>, Index<B>) = delete;
template <class A, class B>
bool operator<=>(Index<A>, Index<B>) = delete;

using ChunkIndex = Index<struct ChunkTag>;    ///< of a parameter chunk
using FlatIndex = Index<struct FlatTag>;      ///< of a chunk, counted with those of all spaces
using BlockIndex = Index<struct BlockTag>;    ///< of a block, as a plan numbers them
using BufferIndex = Index<struct BufferTag>;  ///< of a gradient buffer

}  // namespace ebb
