// Kernels of a program that embeds Ebb (device/own_kernel.h).
#include <cmath>

#include "system/parallel_loop.h"
#include "tests/kernels/harness.h"

namespace ebb::test {
namespace {

/// y = the sums of pieces of 100 elements of x.
struct PieceSums {
  Tensor y, x;

  Cost check() const {
    EBB_CHECK_TENSORS(y.num_elements() == ceil_div(x.num_elements(), 100), "piece_sums: y for x", y,
                      x);
    return {.flops = 1, .bytes = 2, .name = "piece_sums"};
  }
  void run(ThreadTeam& team) const {
    for_each_range(team, x.num_elements(), 100, [this](int64_t begin, int64_t end) {
      float sum = 0;
      for (int64_t i = begin; i < end; ++i) sum += x.as<float>()[i];
      y.as<float>()[begin / 100] = sum;
    });
  }
};
static_assert(RunsOnHost<PieceSums> && !RunsOnGpu<PieceSums>);
static_assert(!IsOwnKernel<Add>, "Ebb's kernels are entries of AnyKernel themselves");

/// Launches on a GPU alone.
struct OnlyOnGpu {
  Cost check() const { return {.name = "only_on_gpu"}; }
  void run(GpuStream) const {}
};
static_assert(RunsOnGpu<OnlyOnGpu> && !RunsOnHost<OnlyOnGpu>);

std::string refusal_of(Harness& h, const AnyKernel& kernel) {
  CountingStream stream;
  try {
    h.kernels->submit(stream, kernel);
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "";
}

TEST(OwnKernel, RunsOnTheDevicesForWhichItHasCode) {
  Harness h;
  const Array x = random_array(DType::F32, {1001}, 1), y(DType::F32, {11});
  const std::string host = refusal_of(h, PieceSums{y, x}), gpu = refusal_of(h, OnlyOnGpu{});
  EXPECT_NE(host.empty(), gpu.empty());
  if (!gpu.empty()) {
    EXPECT_EQ(gpu,
              "only_on_gpu has no kernel for the host: write its run(ThreadTeam&), or use "
              "`device` cuda");
    h.kernels->submit(h.stream, PieceSums{y, x});
    double sum = 0, got = 0;
    for (const double v : x.values()) sum += v;
    for (const double v : y.values()) got += v;
    EXPECT_NEAR(got, sum, 1e-4);
  } else {
    EXPECT_EQ(host,
              "piece_sums has no kernel for a GPU: write its run(GpuStream), or use `device` host");
  }
}

TEST(OwnKernel, HasTheSameBitsForEveryNumberOfThreads) {
  Harness first(1);
  const Array x = random_array(DType::F32, {100001}, 1), y(DType::F32, {1001});
  if (!refusal_of(first, PieceSums{y, x}).empty()) GTEST_SKIP() << "the kernel is for the host";
  first.kernels->submit(first.stream, PieceSums{y, x});
  for (const int threads : {2, 3}) {
    Harness h(threads);
    const Array again(DType::F32, {1001});
    h.kernels->submit(h.stream, PieceSums{again, x});
    EXPECT_EQ(again.raw(), y.raw()) << threads;
  }
}

TEST(OwnKernel, ReportsShapesThatDoNotFit) {
  Harness h;
  CountingStream stream;
  const Array x(DType::F32, {1001}), y(DType::F32, {10});
  try {
    h.kernels->submit(stream, PieceSums{y, x});
    FAIL() << "the shapes do not fit";
  } catch (const ShapeError& error) {
    EXPECT_STREQ(error.what(), "piece_sums: y for x, not y (10) fp32, x (1001) fp32");
  }
}

}  // namespace
}  // namespace ebb::test
