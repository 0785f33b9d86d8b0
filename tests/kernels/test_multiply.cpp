// Products of tensors, and copies of columns.
#include "tests/kernels/reference.h"

namespace ebb::test {
namespace {

const DType kTypes[] = {DType::F32, DType::BF16, DType::F16};

TEST(Multiply, StoresOrAddsTheProduct) {
  for (const DType dtype : kTypes) {
    for (const int64_t n : {1, 7, 16, 17, 1009, 40009}) {
      for (const Write write : {Write::Store, Write::Add}) {
        Harness h;
        const Array a = random_array(dtype, {n}, 1), b = random_array(dtype, {n}, 2);
        const Array y = random_array(dtype, {n}, 3);
        const Values before = write == Write::Add ? y.values() : Values(static_cast<size_t>(n));
        h.kernels->submit(h.stream, Multiply{y, a, b, write});
        const Values product = multiply(a.values(), b.values());
        // The product and the sum are rounded to fp32 before the result is rounded to its type.
        EXPECT_TRUE(close(y.values(), sum(product, before),
                          sum(absolute(product), absolute(before)), 0x1p-23, dtype))
            << name_of(dtype) << ' ' << n << ' ' << text(write);
      }
    }
  }
}

struct Copy {
  int64_t rows, to_columns, from_columns, to_first, from_first, count;
};
/// The last two are whole groups of 16 bytes in each type, and the first one is empty.
const Copy kCopies[] = {{3, 5, 4, 2, 1, 0},         {1, 1, 1, 0, 0, 1},
                        {5, 20, 9, 3, 2, 7},        {7, 40, 33, 0, 0, 33},
                        {300, 70, 17, 16, 0, 17},   {9, 64, 24, 16, 8, 16},
                        {31, 512, 256, 256, 0, 256}};

TEST(CopyColumns, ChangesTheseColumnsOnly) {
  for (const DType dtype : kTypes) {
    for (const Copy& c : kCopies) {
      for (const Write write : {Write::Store, Write::Add}) {
        Harness h;
        const Array to = random_array(dtype, {c.rows, c.to_columns}, 1);
        const Array from = random_array(dtype, {c.rows, c.from_columns}, 2);
        Values want = to.values();
        const Values values = from.values();
        for (int64_t row = 0; row < c.rows; ++row) {
          for (int64_t i = 0; i < c.count; ++i) {
            double& x = want[static_cast<size_t>(row * c.to_columns + c.to_first + i)];
            const double y = values[static_cast<size_t>(row * c.from_columns + c.from_first + i)];
            x = write == Write::Add ? x + y : y;
          }
        }
        h.kernels->submit(h.stream,
                          CopyColumns{to, from, c.to_first, c.from_first, c.count, write});
        EXPECT_TRUE(close(to.values(), want, want, 0, dtype))
            << name_of(dtype) << ' ' << c.rows << " rows, " << c.count << ' ' << text(write);
      }
    }
  }
}

}  // namespace
}  // namespace ebb::test
