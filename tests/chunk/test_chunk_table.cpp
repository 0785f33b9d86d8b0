#include <gtest/gtest.h>

#include <set>

#include "chunk/chunk_table.h"
#include "chunk/ledger.h"

namespace ebb {
namespace {

using S = ChunkState;
constexpr ChunkId kChunk{Space::GradientSums, 1};

/// Moves the chunk to a state by legal transitions.
void move_to(ChunkTable& table, S state, std::vector<Lease>& leases) {
  if (state == S::Absent) return;
  table.place(kChunk, 3, state == S::Loading ? S::Loading : S::Present);
  if (state == S::Leased) leases.push_back(table.lease(kChunk));
  if (state == S::Storing) table.transition(kChunk, S::Storing);
}

TEST(ChunkTable, OnlyLegalTransitionsAreAccepted) {
  const std::set<std::pair<S, S>> legal = {
      {S::Absent, S::Loading},  {S::Absent, S::Present}, {S::Loading, S::Present},
      {S::Loading, S::Leased},  {S::Present, S::Absent}, {S::Present, S::Leased},
      {S::Present, S::Storing}, {S::Leased, S::Present}, {S::Storing, S::Absent}};
  for (int f = 0; f < 5; ++f) {
    for (int t = 0; t < 5; ++t) {
      const S from = static_cast<S>(f), to = static_cast<S>(t);
      ChunkTable table({2, 2, 2, 2});
      std::vector<Lease>
          leases;  // declared after the table, because a lease must not outlive the table
      move_to(table, from, leases);
      ASSERT_EQ(table.state(kChunk), from);
      const bool is_in_table = legal.contains({from, to});
      EXPECT_EQ(is_legal(from, to), is_in_table) << f << " " << t;
      const auto go = [&] {
        from == S::Absent ? table.place(kChunk, 3, to) : table.transition(kChunk, to);
      };
      if (is_in_table) {
        go();
        EXPECT_EQ(table.state(kChunk), to);
      } else {
        EXPECT_THROW(go(), LogicError) << f << " " << t;
        EXPECT_EQ(table.state(kChunk), from);
      }
    }
  }
}

TEST(ChunkTable, ErrorsNameTheChunkAndBothStates) {
  ChunkTable table({2, 2, 2, 2});
  try {
    table.transition(kChunk, S::Storing);
    FAIL();
  } catch (const LogicError& error) {
    EXPECT_STREQ(error.what(), "gradient sums chunk 1: Absent -> Storing");
  }
}

TEST(ChunkTable, ABlockBelongsToOneChunk) {
  ChunkTable table({2, 2, 0, 0});
  table.place({Space::Weights, 0}, 7, S::Loading);
  EXPECT_EQ(table.block({Space::Weights, 0}), 7u);
  EXPECT_THROW(table.place({Space::Weights, 1}, 7, S::Loading), LogicError);
  EXPECT_EQ(table.state({Space::Weights, 1}), S::Absent);
  EXPECT_EQ(table.num_present(), 1u);
  table.transition({Space::Weights, 0}, S::Present);
  table.transition({Space::Weights, 0}, S::Absent);
  EXPECT_EQ(table.block({Space::Weights, 0}), ChunkTable::kNoBlock);
  EXPECT_EQ(table.num_present(), 0u);
  EXPECT_NO_THROW(table.place({Space::Weights, 1}, 7, S::Present));
}

TEST(ChunkTable, ALeaseIsReleasedOnce) {
  ChunkTable table({1, 2, 0, 0});
  table.place(kChunk, 0, S::Present);
  {
    Lease a = table.lease(kChunk);
    EXPECT_EQ(a.chunk(), kChunk);
    EXPECT_THROW((void)table.lease(kChunk), LogicError);
    Lease b = std::move(a);
    EXPECT_EQ(table.state(kChunk), S::Leased);
    a.release();  // the lease was moved to b
    EXPECT_EQ(table.state(kChunk), S::Leased);
    b.release();
    EXPECT_EQ(table.state(kChunk), S::Present);
    b = table.lease(kChunk);
    EXPECT_EQ(table.state(kChunk), S::Leased);
  }
  EXPECT_EQ(table.state(kChunk), S::Present);
}

TEST(ChunkTable, AssigningALeaseReleasesTheOldOne) {
  ChunkTable table({1, 2, 0, 0});
  table.place(kChunk, 0, S::Present);
  table.place({Space::Weights, 0}, 1, S::Present);
  Lease lease = table.lease(kChunk);
  lease = table.lease({Space::Weights, 0});
  EXPECT_EQ(table.state(kChunk), S::Present);
  EXPECT_EQ(table.state({Space::Weights, 0}), S::Leased);
}

TEST(Ledger, AddsBytesByTierAndName) {
  Ledger ledger;
  ledger.add("weights", Tier::Host, 100);
  ledger.add("blocks", Tier::Device, 30);
  ledger.add("weights", Tier::Host, 5);
  ledger.add("weights", Tier::Device, 7);
  ledger.add("nothing", Tier::Host, 0);
  EXPECT_EQ(ledger.entries().size(), 4u);
  EXPECT_EQ(ledger.total(Tier::Host), 105u);
  EXPECT_EQ(ledger.total(Tier::Device), 37u);
  EXPECT_EQ(ledger.bytes("weights", Tier::Host), 105u);
  EXPECT_EQ(ledger.bytes("weights", Tier::Device), 7u);
  EXPECT_EQ(ledger.bytes("momentum", Tier::Host), 0u);
  const std::string table = ledger.table();
  EXPECT_NE(table.find("blocks"), std::string::npos);
  EXPECT_NE(table.find("105 B"), std::string::npos) << table;
  EXPECT_EQ(table.find("nothing"), std::string::npos);
}

}  // namespace
}  // namespace ebb
