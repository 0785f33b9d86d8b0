// Attention of the newest tokens to a cache of keys and values. The results of a text that is given
// in pieces equal those of attention over the whole text.
#include <algorithm>

#include "tests/kernels/reference.h"

namespace ebb::test::tests_of_attention_cached {
namespace {

struct CachedCase {
  std::string name;
  AttentionCase shape;
  std::vector<int64_t> pieces;  // numbers of tokens; their sum is the number of tokens of the case
  int64_t capacity;
};

std::vector<CachedCase> cases() {
  return {
      {"one_token", {1, 1, 1, 1, true, {}}, {1}, 1},
      {"token_by_token", {2, 5, 3, 5, true, {}}, {1, 1, 1, 1, 1}, 9},
      {"prompt_then_tokens", {1, 67, 2, 16, true, {}}, {63, 1, 1, 1, 1}, 70},
      {"pieces_over_tiles", {2, 131, 2, 20, true, {}}, {64, 65, 2}, 131},
      {"grouped", {2, 71, 6, 10, true, {}, 2}, {40, 30, 1}, 80},
      {"window", {1, 90, 2, 8, true, {}, 1, 37}, {50, 39, 1}, 96},
      {"wide_head", {1, 20, 1, 130, true, {}}, {19, 1}, 20},
      {"scaled", {1, 20, 2, 12, true, {}, 1, 0, 0.7}, {19, 1}, 20},
  };
}

class AttentionCachedTest : public testing::TestWithParam<std::tuple<DType, CachedCase>> {
 protected:
  DType dtype() const { return std::get<0>(GetParam()); }
  const CachedCase& c() const { return std::get<1>(GetParam()); }
};
INSTANTIATE_TEST_SUITE_P(Cases, AttentionCachedTest,
                         testing::Combine(testing::Values(DType::F32, DType::BF16),
                                          testing::ValuesIn(cases())),
                         [](const auto& info) {
                           return std::string(name_of(std::get<0>(info.param))) + "_" +
                                  std::get<1>(info.param).name;
                         });

AttentionShape arguments(const AttentionCase& s) {
  return {.num_heads = s.heads,
          .num_kv_heads = s.keys,
          .window = s.window,
          .scale = static_cast<float>(s.scale)};
}

/// Tokens [first, first + count) of each row of the batch.
Values tokens_of(const Values& all, const AttentionCase& s, int64_t columns, int64_t first,
                 int64_t count) {
  Values part;
  for (int64_t b = 0; b < s.batch; ++b) {
    const auto from = all.begin() + (b * s.tokens + first) * columns;
    part.insert(part.end(), from, from + count * columns);
  }
  return part;
}

/// A cache with large values where nothing was written yet. The kernel must not read them.
Array cache_of(DType dtype, const AttentionCase& s, int64_t capacity) {
  return random_array(dtype, {s.batch, capacity, 2 * s.key_heads() * s.head_size}, 9, 50.0);
}

Array positions_of(const AttentionCase& s, int64_t first, int64_t count) {
  std::vector<int32_t> positions;
  for (int64_t i = 0; i < s.batch * count; ++i) {
    positions.push_back(static_cast<int32_t>(first + i % count));
  }
  return int_array(positions);
}

TEST_P(AttentionCachedTest, EqualsAttentionOverTheWholeText) {
  const AttentionCase& s = c().shape;
  Harness h;
  const Array all = random_array(dtype(), {s.batch, s.tokens, s.qkv_columns()}, 5, 2.0);
  const Values want = attention(all.values(), s).out;
  const Array cache = cache_of(dtype(), s, c().capacity);
  int64_t first = 0;
  for (const int64_t count : c().pieces) {
    const Array qkv(dtype(), {s.batch, count, s.qkv_columns()},
                    tokens_of(all.values(), s, s.qkv_columns(), first, count));
    const Array out(dtype(), {s.batch, count, s.channels()});
    const Array positions = positions_of(s, first, count);
    h.kernels->submit(h.stream, AttentionCached{out, qkv, cache, positions, arguments(s)});
    const Values expected = tokens_of(want, s, s.channels(), first, count);
    EXPECT_TRUE(close(out.values(), expected, Values(expected.size(), 2.0), 1e-6, dtype()))
        << "from token " << first;
    first += count;
  }
  ASSERT_EQ(first, s.tokens);
  EXPECT_TRUE(cache.intact());
}

TEST(AttentionCachedTest, TheComparisonFindsMissingKeys) {
  const AttentionCase s{1, 9, 1, 8, true, {}};
  Harness h;
  const Array all = random_array(DType::F32, {1, 9, 24}, 5, 2.0);
  const Array cache = cache_of(DType::F32, s, 9), out(DType::F32, {1, 1, 8});
  const Array qkv(DType::F32, {1, 1, 24}, tokens_of(all.values(), s, 24, 8, 1));
  h.kernels->submit(h.stream,
                    AttentionCached{out, qkv, cache, positions_of(s, 8, 1), arguments(s)});
  const Values want = tokens_of(attention(all.values(), s).out, s, 8, 8, 1);
  EXPECT_FALSE(close(out.values(), want, Values(want.size(), 2.0), 1e-6, DType::F32));
}

TEST(AttentionCachedTest, InvalidPositionsAreErrors) {
  const AttentionCase s{1, 2, 1, 4, true, {}};
  for (const std::vector<int32_t>& positions :
       {std::vector<int32_t>{-1, 0}, {0, 0}, {0, 2}, {1, 0}, {5, 6}}) {
    Harness h;
    const Array cache = cache_of(DType::F32, s, 6), out(DType::F32, {1, 2, 4});
    const Array qkv = random_array(DType::F32, {1, 2, 12}, 1);
    const Array given = int_array(positions);
    EXPECT_THROW(h.kernels->submit(h.stream, AttentionCached{out, qkv, cache, given, arguments(s)}),
                 LogicError);
  }
}

}  // namespace
}  // namespace ebb::test::tests_of_attention_cached
