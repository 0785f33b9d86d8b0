#include <algorithm>

#include "tests/kernels/reference.h"

namespace ebb::test::tests_of_embedding {
namespace {

struct Size {
  int64_t n, c, rows;
};
// The last six are for the sort on a GPU: several tiles, indices of one to three digits, long lists
// of rows, and several slices of columns.
const Size kSizes[] = {{1, 1, 1},      {5, 15, 3},      {64, 16, 300},   {77, 17, 20},
                       {130, 97, 1},   {33, 64, 1000},  {3000, 24, 700}, {2100, 8, 3},
                       {1500, 9, 255}, {1025, 16, 256}, {40, 520, 5},    {50, 8, 70000}};

class Embedding : public testing::TestWithParam<std::tuple<DType, Size>> {};
INSTANTIATE_TEST_SUITE_P(Sizes, Embedding,
                         testing::Combine(testing::Values(DType::F32, DType::BF16, DType::F16),
                                          testing::ValuesIn(kSizes)),
                         ([](const auto& info) {
                           const auto& [dtype, s] = info.param;
                           return std::string(name_of(dtype)) + "_" + std::to_string(s.n) + "_" +
                                  std::to_string(s.c) + "_" + std::to_string(s.rows);
                         }));

TEST_P(Embedding, Forward) {
  const auto [dtype, s] = GetParam();
  Harness h;
  const auto tokens = random_indices(s.n, s.rows, 1), positions = random_indices(s.n, 7, 2);
  const Array wte = random_array(dtype, {s.rows, s.c}, 3), wpe = random_array(dtype, {7, s.c}, 4);
  const Array y(dtype, {s.n, s.c});
  const Array token_array = int_array(tokens), position_array = int_array(positions);
  h.kernels->submit(h.stream, EmbeddingForward{y, token_array, {}, wte, {}});
  EXPECT_EQ(y.values(), embedding(wte.values(), tokens, s.c));
  h.kernels->submit(h.stream, EmbeddingForward{y, token_array, position_array, wte, wpe});
  const Values want =
      sum(embedding(wte.values(), tokens, s.c), embedding(wpe.values(), positions, s.c));
  EXPECT_TRUE(close(y.values(), want, want, 0, dtype));
}

TEST_P(Embedding, Backward) {
  const auto [dtype, s] = GetParam();
  for (Write write : {Write::Store, Write::Add}) {
    Harness h;
    const auto tokens = random_indices(s.n, s.rows, 1);
    const Array dy = random_array(dtype, {s.n, s.c}, 2);
    const Array table = random_array(DType::F32, {s.rows, s.c}, 3);
    const Values before = write == Write::Add ? table.values() : Values(table.values().size());
    h.kernels->submit(h.stream, EmbeddingBackward{table, dy, int_array(tokens), write});
    EXPECT_TRUE(
        close(table.values(), sum(before, embedding_gradient(dy.values(), tokens, s.c, s.rows)),
              sum(absolute(before), embedding_gradient(absolute(dy.values()), tokens, s.c, s.rows)),
              5e-7, DType::F32))
        << text(write);
  }
}

TEST(Embedding, BackwardIsTheDerivativeOfForward) {
  constexpr int64_t n = 40, c = 9, rows = 11;
  Harness h;
  const Array tokens = int_array(random_indices(n, rows, 1));
  const Array dy = random_array(DType::F32, {n, c}, 2),
              table = random_array(DType::F32, {rows, c}, 3);
  const Array dtable(DType::F32, {rows, c});
  h.kernels->submit(h.stream, EmbeddingBackward{dtable, dy, tokens, Write::Store});
  const auto forward = [&](const Values& v) {
    const Array y(DType::F32, {n, c});
    h.kernels->submit(h.stream,
                      EmbeddingForward{y, tokens, {}, Array(DType::F32, {rows, c}, v), {}});
    return y.values();
  };
  EXPECT_TRUE(differentiates(forward, dy.values(), table.values(), dtable.values(), 0.5, 1e-5));
  Values missing_row = dtable.values();
  for (size_t j = 0; j < c; ++j) missing_row[3 * c + j] = 0;
  EXPECT_FALSE(differentiates(forward, dy.values(), table.values(), missing_row, 0.5, 1e-5));
}

TEST(Embedding, BackwardAddsInRowOrder) {
  // In fp32, 1 + 2^-24 + 2^-24 + ... is 1, and 2^-24 + 2^-24 + ... + 1 is more than 1.
  Harness h;
  const Array late(DType::F32, {5, 1}, {1, 0x1p-24, 0x1p-24, 0x1p-24, 0x1p-24});
  const Array early(DType::F32, {5, 1}, {0x1p-24, 0x1p-24, 0x1p-24, 0x1p-24, 1});
  const Array table(DType::F32, {1, 1}), zeros = int_array({0, 0, 0, 0, 0});
  h.kernels->submit(h.stream, EmbeddingBackward{table, late, zeros, Write::Store});
  EXPECT_EQ(table.values()[0], 1.0);
  h.kernels->submit(h.stream, EmbeddingBackward{table, early, zeros, Write::Store});
  EXPECT_EQ(table.values()[0], 1.0 + 0x1p-22);
}

TEST(Embedding, IndicesOutsideTheTableAreErrors) {
  Harness h;
  const Array table = random_array(DType::F32, {10, 4}, 1), y(DType::F32, {2, 4});
  for (int32_t bad : {-1, 10, -100}) {
    const Array tokens = int_array({3, bad});
    EXPECT_THROW(h.kernels->submit(h.stream, EmbeddingForward{y, tokens, {}, table, {}}),
                 LogicError);
    EXPECT_THROW(
        h.kernels->submit(h.stream, EmbeddingForward{y, int_array({1, 2}), tokens, table, table}),
        LogicError);
    EXPECT_THROW(h.kernels->submit(h.stream, EmbeddingBackward{table, y, tokens, Write::Store}),
                 LogicError);
  }
}

}  // namespace
}  // namespace ebb::test::tests_of_embedding
