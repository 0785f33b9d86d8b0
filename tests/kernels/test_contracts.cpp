// Contracts of all kernels: a call checks its shapes, a simulated device accesses no memory, and
// the canaries of these tests detect writes outside an array.
#include <cmath>
#include <iterator>
#include <utility>
#include <variant>

#include "tests/kernels/reference.h"

namespace ebb::test {
namespace {

/// A tensor whose memory must not be accessed.
Tensor imaginary(DType dtype, Shape shape) {
  return {reinterpret_cast<std::byte*>(uintptr_t{0x1000}), dtype, shape};
}

Planes imaginary_planes() {
  Planes planes{.gradient = imaginary(DType::F32, {1}).data};
  for (size_t i = 0; i < state_planes(DType::F32).size(); ++i) {
    planes[i] = imaginary(DType::F32, {1}).data;
  }
  return planes;
}

/// A kernel of a program that embeds Ebb.
struct OwnCopy {
  Tensor y, x;
  Cost check() const { return {.bytes = 1, .name = "own_copy"}; }
  void run(ThreadTeam&) const {}
  void run(GpuStream) const {}
};

TEST(Contracts, ASimulatedDeviceAccessesNoMemory) {
  Harness h;
  Kernels* const kernels = &*h.kernels;
  CountingStream s;
  const DType t = DType::BF16, f = DType::F32, i32 = DType::I32;
  const int64_t n = 1000, c = 64, v = 5000;
  const auto x = imaginary(t, {n, c}), dx = imaginary(t, {n, c}), w = imaginary(t, {v, c});
  const auto y = imaginary(t, {n, v}), row = imaginary(f, {n}), column = imaginary(t, {c});
  const auto dcolumn = imaginary(f, {c}), indices = imaginary(i32, {n}), dw = imaginary(f, {v, c});
  const auto qkv = imaginary(t, {10, 100, 3 * c}), out = imaginary(t, {10, 100, c});
  const auto cache = imaginary(t, {10, 500, 2 * c}), positions = imaginary(i32, {10, 100});
  const auto lse = imaginary(f, {10, 4, 100}), statistics = imaginary(f, {n, 3});
  const auto flat_qkv = imaginary(t, {n, 8 * c}), rstds = imaginary(f, {n, 6});
  const auto table = imaginary(f, {n, c}), wide = imaginary(t, {n, 2 * c});
  const std::vector<double> frequencies(static_cast<size_t>(c / 2));
  const UpdateRange ranges[] = {{.count = n}};
  const AdamWCoefficients coefficients[1] = {};
  const std::pair<const char*, AnyKernel> all_kernels[] = {
      {"linear_forward", LinearForward{y, x, w, {}}},
      {"linear_backward_input", LinearBackwardInput{dx, y, w, Write::Add}},
      {"linear_backward_weight", LinearBackwardWeight{dw, {}, y, x, Write::Add}},
      {"layer_norm_forward", LayerNormForward{dx, row, row, x, column, column, 1e-5f}},
      {"layer_norm_backward",
       LayerNormBackward{dx, Write::Add, dcolumn, dcolumn, Write::Add, x, x, column, row, row}},
      {"rms_norm_forward", RmsNormForward{dx, row, x, column, 1e-5f}},
      {"rms_norm_backward",
       RmsNormBackward{dx, Write::Add, dcolumn, Write::Add, x, x, column, row}},
      {"head_norm_forward",
       HeadNormForward{flat_qkv, rstds, flat_qkv, column, column, {4, 2}, 1e-5f}},
      {"head_norm_backward",
       HeadNormBackward{
           flat_qkv, dcolumn, dcolumn, Write::Add, flat_qkv, column, column, rstds, {4, 2}}},
      {"rotary_table", RotaryTable{table, indices, frequencies, 1}},
      {"rotary", ApplyRotary{flat_qkv, table, 6, RotaryDirection::Backward}},
      {"swiglu_forward", SwigluForward{x, wide}},
      {"swiglu_backward", SwigluBackward{wide, x, wide, Write::Add}},
      {"activation_forward", ActivationForward{dx, x, Activation::Relu}},
      {"activation_backward", ActivationBackward{dx, x, x, Activation::Relu, Write::Add}},
      {"softmax_forward", SoftmaxForward{dx, x}},
      {"softmax_backward", SoftmaxBackward{dx, x, x, Write::Add}},
      {"add", Add{dx, x, x}},
      {"multiply", Multiply{dx, x, x, Write::Add}},
      {"copy_columns", CopyColumns{wide, x, c, 0, c, Write::Store}},
      {"accumulate", Accumulate{dx, x}},
      {"fill_zero", FillZero{dx}},
      {"dropout", ApplyDropout{dx, {.probability = 0.5f}}},
      {"embedding_forward", EmbeddingForward{x, indices, indices, w, w}},
      {"embedding_backward", EmbeddingBackward{dw, x, indices, Write::Store}},
      {"attention_forward", AttentionForward{out, lse, qkv, {.num_heads = 4}}},
      {"attention_cached", AttentionCached{out, qkv, cache, positions, {.num_heads = 4}}},
      {"attention_backward", AttentionBackward{qkv, out, qkv, out, lse, {.num_heads = 4}}},
      {"cross_entropy", CrossEntropy{row, y, indices, 1.0f}},
      {"cross_entropy_statistics",
       CrossEntropyStatistics{row, statistics, y, indices, {v, v, 3 * v}}},
      {"cross_entropy_gradient", CrossEntropyGradient{y, statistics, indices, {v, v, 3 * v}, 1.0f}},
      {"mean_squared_error", MeanSquaredError{row, dx, x, x, Write::Add, 1.0f}},
      {"own_copy", OwnCopy{dx, x}},
      {"sum", Sum{imaginary(DType::F64, {1}), row, Write::Add}},
      {"round_gradient", RoundGradient{imaginary(t, {n}), row, {}, {}}},
      {"squared_norm_pieces", SquaredNormPieces{imaginary(DType::F64, {1}), x}},
      {"adamw", AdamWUpdate{imaginary_planes(), ranges, coefficients}},
  };
  // The other one may be submitted as two kernels (test_linear_activation.cpp).
  EXPECT_EQ(std::size(all_kernels), std::variant_size_v<AnyKernel::variant> - 1);
  for (const auto& [name, kernel] : all_kernels) {
    s.last_cost = {};
    kernels->submit(s, kernel);
    EXPECT_EQ(s.last_cost.name, name);
    EXPECT_GT(s.last_cost.bytes, 0) << name;
  }
  kernels->submit(s, LinearForward{y, x, w, {}});
  EXPECT_EQ(s.last_cost.flops, 2.0 * n * c * v);
  EXPECT_EQ(s.last_cost.bytes, 2.0 * (n * v + n * c + v * c));
}

TEST(Contracts, WrongShapesAndTypesAreErrors) {
  Harness h;
  Kernels& k = *h.kernels;
  const auto t = [](Shape shape) { return imaginary(DType::F32, shape); };
  const auto b = [](Shape shape) { return imaginary(DType::BF16, shape); };
  const auto i = [](Shape shape) { return imaginary(DType::I32, shape); };
  Stream& s = h.stream;
  EXPECT_THROW(k.submit(s, LinearForward{t({4, 5}), t({4, 3}), t({5, 2}), {}}), LogicError);
  EXPECT_THROW(k.submit(s, LinearForward{t({4, 5}), t({4, 3}), b({5, 3}), {}}), LogicError);
  EXPECT_THROW(k.submit(s, LinearForward{t({4, 5}), t({4, 3}), t({5, 3}), t({4})}), LogicError);
  EXPECT_THROW(k.submit(s, LinearBackwardInput{t({4, 3}), t({3, 5}), t({5, 3}), Write::Store}),
               LogicError);
  EXPECT_THROW(k.submit(s, LinearBackwardWeight{b({5, 3}), {}, b({4, 5}), b({4, 3}), Write::Store}),
               LogicError);
  EXPECT_THROW(
      k.submit(s, LinearBackwardWeight{t({5, 3}), t({4}), t({4, 5}), t({4, 3}), Write::Store}),
      LogicError);
  EXPECT_THROW(
      k.submit(s, LayerNormForward{t({4, 3}), t({3}), t({4}), t({4, 3}), t({3}), t({3}), 1e-5f}),
      LogicError);
  EXPECT_THROW(k.submit(s, RmsNormForward{t({4, 3}), t({3}), t({4, 3}), t({3}), 1e-5f}),
               LogicError);
  EXPECT_THROW(k.submit(s, RmsNormBackward{t({4, 3}), Write::Add, b({3}), Write::Add, t({4, 3}),
                                           t({4, 3}), t({3}), t({4})}),
               LogicError);
  EXPECT_THROW(
      k.submit(s, HeadNormForward{t({4, 16}), t({4, 3}), t({4, 16}), t({4}), t({4}), {1, 2}, 0}),
      LogicError);
  EXPECT_THROW(
      k.submit(s, HeadNormForward{t({4, 20}), t({4, 2}), t({4, 20}), t({4}), t({4}), {1, 2}, 0}),
      LogicError);
  const std::vector<double> two(2);
  EXPECT_THROW(k.submit(s, RotaryTable{t({4, 2}), i({4}), two, 1}), LogicError);
  EXPECT_THROW(k.submit(s, RotaryTable{t({4, 4}), i({3}), two, 1}), LogicError);
  EXPECT_THROW(k.submit(s, ApplyRotary{t({4, 10}), t({4, 4}), 3, RotaryDirection::Forward}),
               LogicError);
  EXPECT_THROW(k.submit(s, ApplyRotary{t({4, 10}), t({4, 5}), 2, RotaryDirection::Forward}),
               LogicError);
  EXPECT_THROW(k.submit(s, SwigluForward{t({4, 3}), t({4, 7})}), LogicError);
  EXPECT_THROW(k.submit(s, SwigluBackward{t({4, 3}), t({4, 3}), t({4, 6}), Write::Add}),
               LogicError);
  EXPECT_THROW(k.submit(s, ActivationForward{t({4}), b({4}), Activation::Relu}), LogicError);
  EXPECT_THROW(k.submit(s, Add{t({4}), t({4}), t({5})}), LogicError);
  EXPECT_THROW(k.submit(s, Multiply{t({4}), t({4}), b({4}), Write::Store}), ShapeError);
  EXPECT_THROW(k.submit(s, CopyColumns{t({4, 5}), t({4, 3}), 3, 0, 3, Write::Store}), ShapeError);
  EXPECT_THROW(k.submit(s, CopyColumns{t({4, 5}), t({3, 3}), 0, 0, 3, Write::Store}), ShapeError);
  EXPECT_THROW(k.submit(s, SoftmaxForward{t({4, 5}), t({5, 4})}), ShapeError);
  EXPECT_THROW(k.submit(s, SoftmaxBackward{t({4, 5}), t({4, 5}), b({4, 5}), Write::Add}),
               ShapeError);
  EXPECT_THROW(k.submit(s, MeanSquaredError{t({4}), {}, t({4, 3}), i({4, 3}), Write::Store, 1.0f}),
               ShapeError);
  EXPECT_THROW(k.submit(s, MeanSquaredError{t({3}), {}, t({4, 3}), t({4, 3}), Write::Store, 1.0f}),
               ShapeError);
  EXPECT_THROW(k.submit(s, Accumulate{i({4}), t({4})}), LogicError);
  EXPECT_THROW(k.submit(s, EmbeddingForward{t({4, 3}), i({5}), {}, t({9, 3}), {}}), LogicError);
  EXPECT_THROW(k.submit(s, EmbeddingForward{t({4, 3}), i({4}), {}, t({9, 3}), t({9, 3})}),
               LogicError);
  EXPECT_THROW(k.submit(s, EmbeddingBackward{b({9, 3}), b({4, 3}), i({4}), Write::Add}),
               LogicError);
  EXPECT_THROW(
      k.submit(s, AttentionForward{t({1, 4, 9}), t({1, 2, 4}), t({1, 4, 27}), {.num_heads = 2}}),
      LogicError);
  EXPECT_THROW(
      k.submit(s, AttentionForward{t({1, 4, 8}), t({1, 2, 4}), t({1, 4, 16}), {.num_heads = 2}}),
      LogicError);
  EXPECT_THROW(
      k.submit(s,
               AttentionForward{
                   t({1, 4, 6}), t({1, 3, 4}), t({1, 4, 14}), {.num_heads = 3, .num_kv_heads = 2}}),
      LogicError);
  EXPECT_THROW(k.submit(s, AttentionForward{t({1, 4, 6}),
                                            t({1, 3, 4}),
                                            t({1, 4, 18}),
                                            {.num_heads = 3, .causal = false, .window = 2}}),
               LogicError);
  EXPECT_THROW(k.submit(s, CrossEntropy{t({4}), t({4, 9}), t({4}), {}}), LogicError);
  EXPECT_THROW(k.submit(s, CrossEntropy{t({4}), t({4, 9}), i({4}), {}, 10}), LogicError);
  EXPECT_THROW(k.submit(s, CrossEntropy{t({4}), t({4, 80}), i({4}), {}, 16}), LogicError);
  EXPECT_THROW(k.submit(s, CrossEntropyStatistics{t({4}), t({4, 2}), t({4, 9}), i({4}), {0, 9, 9}}),
               LogicError);
  EXPECT_THROW(k.submit(s, CrossEntropyStatistics{t({4}), t({4, 3}), t({4, 9}), i({4}), {1, 9, 9}}),
               LogicError);
  EXPECT_THROW(k.submit(s, CrossEntropyGradient{t({4, 9}), t({4, 3}), i({3}), {0, 9, 9}, 1.0f}),
               LogicError);
  EXPECT_THROW(k.submit(s, LinearBackwardInput{b({4, 3}), t({4, 5}), t({5, 3}), Write::Store}),
               LogicError);
  EXPECT_THROW(k.submit(s, Sum{t({1}), t({4}), Write::Store}), LogicError);
  EXPECT_THROW(k.submit(s, RoundGradient{b({4}), b({4}), {}, {}}), LogicError);
  EXPECT_THROW(k.submit(s, RoundGradient{b({65537}), t({65537}), {}, imaginary(DType::F64, {1})}),
               LogicError);
  EXPECT_THROW(k.submit(s, SquaredNormPieces{imaginary(DType::F64, {2}), t({65536})}), LogicError);
  EXPECT_THROW(k.submit(s, AdamWUpdate{}), LogicError);
  const UpdateRange range{.count = 4};
  EXPECT_THROW(k.submit(s, AdamWUpdate{imaginary_planes(), {&range, 1}, {}}), LogicError);
}

TEST(Contracts, AShapeErrorNamesTheTensorsAndTheirSizes) {
  Harness h;
  const Tensor x = imaginary(DType::BF16, {2, 4, 128}), w = imaginary(DType::BF16, {10, 64});
  const Tensor y = imaginary(DType::BF16, {2, 4, 10});
  try {
    h.kernels->submit(h.stream, LinearForward{y, x, w, {}});
    FAIL() << "the shapes do not fit";
  } catch (const ShapeError& error) {
    EXPECT_STREQ(error.what(),
                 "linear_forward: y (N, OC) = x (N, C) w (OC, C)^T, not y (2, 4, 10) bf16, "
                 "x (2, 4, 128) bf16, w (10, 64) bf16");
  }
}

TEST(Contracts, ViewsThatDoNotExistNameTheSizes) {
  const Tensor x = imaginary(DType::F32, {4, 6});
  const auto message_of = [](const auto& view) {
    try {
      view();
    } catch (const ShapeError& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  EXPECT_EQ(message_of([&] {
              x.reshape({5, 5});
            }),
            "a tensor (4, 6) fp32 cannot become (5, 5), which has another number of elements");
  EXPECT_EQ(message_of([&] { x.slice_rows(3, 2); }), "a tensor (4, 6) fp32 has no rows 3 to 5");
  EXPECT_EQ(message_of([&] { x.reshape({24}).reshape({2, 12}); }), "");
  EXPECT_EQ(imaginary(DType::F32, {4, 0}).rows(), 0);
  EXPECT_EQ(to_string(Tensor{}), "none");
}

TEST(Contracts, TensorsMayHaveNoRows) {
  Harness h;
  const Array x(DType::F32, {0, 8}), y(DType::F32, {0, 4}), w = random_array(DType::F32, {4, 8}, 1);
  h.kernels->submit(h.stream, LinearForward{y, x, w, {}});
  const Array dw = random_array(DType::F32, {4, 8}, 2);
  h.kernels->submit(h.stream, LinearBackwardWeight{dw, {}, y, x, Write::Store});
  EXPECT_EQ(dw.values(), Values(32));
}

TEST(Contracts, CanariesDetectAWriteOutside) {
  Guarded memory(100);
  memory.data()[99] = std::byte{1};
  EXPECT_TRUE(memory.intact());
  memory.data()[100] = std::byte{1};
  EXPECT_FALSE(memory.intact());
  memory.data()[100] = std::byte{0xA5};
}

}  // namespace
}  // namespace ebb::test
