// Compares training runs: schedules of one class must give the same bits.
#pragma once

#include <map>
#include <vector>

#include "tests/trainer/matrix.h"

namespace ebb::test {

/// Runs cases and expects the same outcome from all cases of a class. The reference of a class is
/// its run with everything resident, on one thread.
class IdentityCheck {
 public:
  void run(const TrainingCase& run);
  size_t num_runs() const { return num_runs_; }

 private:
  const Outcome& expected(const TrainingCase& run);

  std::map<std::vector<int64_t>, Outcome> expected_;  // by class
  size_t num_runs_ = 0;
};

/// For settings outside the matrix: runs five schedules that together vary every setting of a
/// schedule, each with clipping and without.
void check_few_schedules(IdentityCheck& check, const TrainingCase& of);

}  // namespace ebb::test
