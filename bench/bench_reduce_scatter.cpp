// Is the ordered sum of several processes as fast as MPI's own sum of the same bytes?
//
//   mpirun -n 4 --mca mpi_yield_when_idle 1 bench_reduce_scatter [passes = 8]
//
// Each process has an array of fp32 in memory that all processes share. Each makes its part of the
// sum of all arrays: with round_sums_in_order() (cpu_adam/ordered_sum.h), which reads the arrays of
// all processes; with MPI_Reduce_scatter_block; and, as a roof, by copying as many bytes as the
// ordered sum reads and writes. Prints the medians of the slowest process. One machine only.
#include <fmt/format.h>
#include <mpi.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <span>
#include <vector>

#include "cpu_adam/ordered_sum.h"
#include "system/thread_team.h"

namespace ebb::bench {
namespace {

constexpr int64_t kCount = int64_t{16} << 20;  // elements of each array

int rank_of() {
  int rank = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  return rank;
}

int num_ranks() {
  int size = 0;
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  return size;
}

/// The arrays of all processes.
class SharedArrays {
 public:
  SharedArrays() {
    float* mine = nullptr;
    MPI_Win_allocate_shared(kCount * sizeof(float), sizeof(float), MPI_INFO_NULL, MPI_COMM_WORLD,
                            &mine, &window_);
    for (int64_t i = 0; i < kCount; ++i) {
      mine[i] = 1.0f + static_cast<float>((i + rank_of()) % 97) / 64;
    }
    for (int rank = 0; rank < num_ranks(); ++rank) {
      MPI_Aint bytes = 0;
      int unit = 0;
      float* data = nullptr;
      MPI_Win_shared_query(window_, rank, &bytes, &unit, &data);
      arrays_.push_back(data);
    }
  }
  ~SharedArrays() { MPI_Win_free(&window_); }
  const std::vector<const float*>& all() const { return arrays_; }
  const float* mine() const { return arrays_[static_cast<size_t>(rank_of())]; }

 private:
  MPI_Win window_ = MPI_WIN_NULL;
  std::vector<const float*> arrays_;
};

/// The median of the passes, each of which ends when all processes have done the work.
template <class Work>
double median_s(int passes, const Work& work) {
  std::vector<double> seconds;
  for (int i = 0; i < passes + 1; ++i) {
    MPI_Barrier(MPI_COMM_WORLD);
    const double start_s = MPI_Wtime();
    work();
    MPI_Barrier(MPI_COMM_WORLD);
    if (i > 0) seconds.push_back(MPI_Wtime() - start_s);  // the first pass touches the memory
  }
  std::nth_element(seconds.begin(), seconds.begin() + passes / 2, seconds.end());
  return seconds[static_cast<size_t>(passes) / 2];
}

bool run(int passes) {
  const SharedArrays arrays;
  const int64_t part = kCount / num_ranks();
  const int64_t first = part * rank_of();
  std::vector<const std::byte*> groups;
  for (const float* array : arrays.all()) {
    groups.push_back(reinterpret_cast<const std::byte*>(array + first));
  }
  const GroupSums uses[] = {groups};
  std::vector<float> ordered(static_cast<size_t>(part)), by_mpi(ordered.size());
  ThreadTeam team(1);
  const double ordered_s = median_s(passes, [&] {
    round_sums_in_order(team, uses, DType::F32, part, reinterpret_cast<std::byte*>(ordered.data()),
                        DType::F32);
  });
  const double mpi_s = median_s(passes, [&] {
    MPI_Reduce_scatter_block(arrays.mine(), by_mpi.data(), static_cast<int>(part), MPI_FLOAT,
                             MPI_SUM, MPI_COMM_WORLD);
  });
  // A copy reads and writes, so half of the bytes of the sum are copied.
  const size_t moved = (groups.size() + 1) * ordered.size() * sizeof(float);
  std::vector<std::byte> copied(moved / 2);
  const double copy_s = median_s(passes, [&] {
    std::memcpy(copied.data(), arrays.mine(), std::min<size_t>(moved / 2, kCount * sizeof(float)));
  });
  // The sums of these values are exact, so their order does not matter.
  int is_right = ordered == by_mpi ? 1 : 0;
  MPI_Allreduce(MPI_IN_PLACE, &is_right, 1, MPI_INT, MPI_MIN, MPI_COMM_WORLD);
  if (rank_of() == 0) {
    fmt::print("{} processes, {} MiB each\n", num_ranks(), kCount * sizeof(float) >> 20);
    fmt::print("ordered sum               {:8.4f} s, {:.1f} GB/s of each process\n", ordered_s,
               static_cast<double>(moved) / ordered_s / 1e9);
    fmt::print("MPI_Reduce_scatter_block  {:8.4f} s; the ordered sum is {:.2f} x as fast\n", mpi_s,
               mpi_s / ordered_s);
    fmt::print("copy of as many bytes     {:8.4f} s; the ordered sum reaches {:.0f} % of it\n",
               copy_s, 100 * copy_s / ordered_s);
    if (is_right == 0) fmt::print("the sums differ\n");
  }
  return is_right != 0;
}

}  // namespace
}  // namespace ebb::bench

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  const bool is_right = ebb::bench::run(argc > 1 ? std::max(1, std::atoi(argv[1])) : 8);
  MPI_Finalize();
  return is_right ? 0 : 1;
}
