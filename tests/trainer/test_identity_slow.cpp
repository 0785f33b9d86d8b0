// The whole matrix.
#include <gtest/gtest.h>

#include "tests/trainer/identity.h"

namespace ebb::test {
namespace {

TEST(IdentitySlow, WholeMatrix) {
  IdentityCheck check;
  for (const Choice& choice : whole_matrix()) check.run(case_of(choice));
  EXPECT_EQ(check.num_runs(), 12u + whole_matrix().size());
}

}  // namespace
}  // namespace ebb::test
