#include "tests/kernels/bit_cases.h"

#include <array>

namespace ebb::test {
namespace {

void append(Bits& to, const Array& from) {
  const Bits raw = from.raw();
  to.insert(to.end(), raw.begin(), raw.end());
}

Bits run_layer_norm(Harness& h, DType t) {
  constexpr int64_t n = 300;
  Bits bits;
  for (const int64_t c : {197, 200}) {
    const Array x = random_array(t, {n, c}, 1), w = random_array(t, {c}, 2),
                b = random_array(t, {c}, 3);
    const Array y(t, {n, c}), mean(DType::F32, {n}), rstd(DType::F32, {n}), dx(t, {n, c});
    const Array dw(DType::F32, {c}), db(DType::F32, {c});
    h.kernels->submit(h.stream, LayerNormForward{y, mean, rstd, x, w, b, 1e-5f});
    h.kernels->submit(
        h.stream, LayerNormBackward{dx, Write::Store, dw, db, Write::Store, y, x, w, mean, rstd});
    for (const Array* a : {&y, &mean, &rstd, &dx, &dw, &db}) append(bits, *a);
  }
  return bits;
}

Bits run_rms_norm(Harness& h, DType t) {
  constexpr int64_t n = 300, d = 22;
  Bits bits;
  for (const int64_t c : {197, 200}) {
    const Array x = random_array(t, {n, c}, 1), w = random_array(t, {c}, 2), y(t, {n, c});
    const Array rstd(DType::F32, {n}), dx(t, {n, c}), dw(DType::F32, {c});
    h.kernels->submit(h.stream, RmsNormForward{y, rstd, x, w, 1e-5f});
    h.kernels->submit(h.stream, RmsNormBackward{dx, Write::Store, dw, Write::Store, y, x, w, rstd});
    const Array qkv = random_array(t, {n, 7 * d}, 3), g = random_array(t, {n, 7 * d}, 4);
    const Array wq = random_array(t, {d}, 5), wk = random_array(t, {d}, 6), normal(t, {n, 7 * d});
    const Array rstds(DType::F32, {n, 5}), dwq(DType::F32, {d}), dwk(DType::F32, {d});
    h.kernels->submit(h.stream, HeadNormForward{normal, rstds, qkv, wq, wk, {3, 2}, 1e-5f});
    h.kernels->submit(h.stream,
                      HeadNormBackward{g, dwq, dwk, Write::Store, qkv, wq, wk, rstds, {3, 2}});
    for (const Array* a : {&y, &rstd, &dx, &dw, &normal, &rstds, &g, &dwq, &dwk}) append(bits, *a);
  }
  return bits;
}

Bits run_rotary_and_swiglu(Harness& h, DType t) {
  constexpr int64_t n = 200;
  Bits bits;
  for (const int64_t f : {333, 336}) {
    const Array positions = int_array(random_indices(n, 5000, 1)), table(DType::F32, {n, 34});
    const Values frequencies = random_values(17, 2);
    const Array x = random_array(t, {n, 100}, 3), wide = random_array(t, {n, 2 * f}, 4, 6.0);
    const Array y(t, {n, f}), dx(t, {n, 2 * f});
    h.kernels->submit(h.stream, RotaryTable{table, positions, frequencies, 1.1});
    h.kernels->submit(h.stream, ApplyRotary{x, table, 2, RotaryDirection::Forward});
    h.kernels->submit(h.stream, SwigluForward{y, wide});
    h.kernels->submit(h.stream, SwigluBackward{dx, y, wide, Write::Store});
    for (const Array* a : {&table, &x, &y, &dx}) append(bits, *a);
  }
  return bits;
}

Bits run_elementwise(Harness& h, DType t) {
  constexpr int64_t n = 40007;
  const Array x = random_array(t, {n}, 1, 6.0), dy = random_array(t, {n}, 2), y(t, {n}), dx(t, {n});
  Bits bits;
  for (Activation activation : {Activation::GeluTanh, Activation::Gelu, Activation::Relu}) {
    h.kernels->submit(h.stream, ActivationForward{y, x, activation});
    h.kernels->submit(h.stream, ActivationBackward{dx, dy, x, activation, Write::Store});
    append(bits, y);
    append(bits, dx);
  }
  h.kernels->submit(h.stream, Accumulate{dx, x});
  h.kernels->submit(h.stream, Add{y, x, dy});
  append(bits, dx);
  append(bits, y);
  return bits;
}

Bits run_rows(Harness& h, DType t) {
  constexpr int64_t n = 70;
  Bits bits;
  for (const int64_t c : {197, 200, 1999, 2048}) {
    const Array x = random_array(t, {n, c}, 1, 6.0), dy = random_array(t, {n, c}, 2);
    const Array y(t, {n, c}), dx(t, {n, c}), wide(t, {n, 2 * c}), losses(DType::F32, {n});
    h.kernels->submit(h.stream, SoftmaxForward{y, x});
    h.kernels->submit(h.stream, SoftmaxBackward{dx, dy, y, Write::Store});
    append(bits, dx);
    h.kernels->submit(h.stream, Multiply{dx, x, y, Write::Add});
    h.kernels->submit(h.stream, CopyColumns{wide, x, 0, 0, c, Write::Store});
    h.kernels->submit(h.stream, CopyColumns{wide, dx, c, 0, c, Write::Store});
    h.kernels->submit(h.stream, MeanSquaredError{losses, dx, x, dy, Write::Add, 0.01f});
    for (const Array* a : {&y, &dx, &wide, &losses}) append(bits, *a);
  }
  return bits;
}

Bits run_linear_activation(Harness& h, DType t) {
  constexpr int64_t n = 70, c = 130;
  Bits bits;
  for (const int64_t inner : {200, 77}) {
    const Array x = random_array(t, {n, c}, 1), up = random_array(t, {inner, c}, 2);
    const Array bias = random_array(t, {inner}, 3), down = random_array(t, {c, inner}, 4);
    const Array before(t, {n, inner}), y(t, {n, inner}), dbefore(t, {n, inner});
    for (const Activation kind : {Activation::GeluTanh, Activation::Gelu}) {
      h.kernels->submit(h.stream, LinearForward{before, x, up, bias});
      h.kernels->submit(h.stream, ActivationForward{y, before, kind});
      h.kernels->submit(h.stream, ActivationLinearBackward{dbefore, x, down, before, kind});
      for (const Array* a : {&before, &y, &dbefore}) append(bits, *a);
    }
  }
  return bits;
}

Bits run_embedding(Harness& h, DType t) {
  constexpr int64_t n = 500, rows = 60;
  Bits bits;
  for (const int64_t c : {50, 56}) {
    const Array tokens = int_array(random_indices(n, rows, 1)),
                table = random_array(t, {rows, c}, 2);
    const Array y(t, {n, c}), dtable(DType::F32, {rows, c});
    h.kernels->submit(h.stream, EmbeddingForward{y, tokens, tokens, table, table});
    h.kernels->submit(h.stream, EmbeddingBackward{dtable, y, tokens, Write::Store});
    append(bits, y);
    append(bits, dtable);
  }
  return bits;
}

Bits run_attention(Harness& h, DType t) {
  // Several tiles of queries and keys; fewer with a sanitizer, which checks each access.
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
  constexpr int64_t b = 1, n = 150, heads = 2, d = 24;
#else
  constexpr int64_t b = 2, n = 280, heads = 4, d = 24;
#endif
  Bits bits;
  std::vector<int32_t> starts;
  for (int64_t i = 0; i < b * n; ++i) starts.push_back(i % n < 100 ? 0 : 100);
  const Array starts_array = int_array(starts);
  for (const AttentionShape& shape :
       {AttentionShape{heads, true, starts_array}, AttentionShape{heads, false, starts_array},
        AttentionShape{heads, true, {}}, AttentionShape{heads, true, starts_array, 2, 50}}) {
    const Array qkv = random_array(t, {b, n, (heads + 2 * shape.kv_heads()) * d}, 1, 2.0),
                out(t, {b, n, heads * d});
    const Array lse(DType::F32, {b, heads, n}), dout = random_array(t, {b, n, heads * d}, 2);
    const Array dqkv(t, qkv.tensor().shape);
    h.kernels->submit(h.stream, AttentionForward{out, lse, qkv, shape});
    h.kernels->submit(h.stream, AttentionBackward{dqkv, dout, qkv, out, lse, shape});
    for (const Array* a : {&out, &lse, &dqkv}) append(bits, *a);
  }
  return bits;
}

Bits run_loss(Harness& h, DType t) {
  constexpr int64_t n = 50;
  Bits bits;
  for (const int64_t classes : {1003, 8200}) {
    const Array logits = random_array(t, {n, classes}, 1, 8.0), losses(DType::F32, {n});
    const Array targets = int_array(random_indices(n, classes, 2)), total(DType::F64, {1});
    h.kernels->submit(h.stream, CrossEntropy{losses, logits, targets, 0.01f});
    h.kernels->submit(h.stream, Sum{total, losses, Write::Store});
    for (const Array* a : {&losses, &logits, &total}) append(bits, *a);
  }
  return bits;
}

Bits run_sliced_loss(Harness& h, DType t) {
  constexpr int64_t n = 50;
  Bits bits;
  for (const int64_t width : {501, 504}) {
    const Array low = random_array(t, {n, width}, 1, 8.0),
                high = random_array(t, {n, width}, 2, 8.0);
    const Array targets = int_array(random_indices(n, 2 * width, 3));
    const Array losses(DType::F32, {n}), statistics(DType::F32, {n, 3});
    const ClassSlice slices[] = {{0, width, 2 * width}, {width, width, 2 * width}};
    h.kernels->submit(h.stream,
                      CrossEntropyStatistics{losses, statistics, low, targets, slices[0]});
    h.kernels->submit(h.stream,
                      CrossEntropyStatistics{losses, statistics, high, targets, slices[1]});
    h.kernels->submit(h.stream, CrossEntropyGradient{high, statistics, targets, slices[1], 0.01f});
    h.kernels->submit(h.stream, CrossEntropyGradient{low, statistics, targets, slices[0], 0.01f});
    for (const Array* a : {&losses, &statistics, &low, &high}) append(bits, *a);
  }
  return bits;
}

Bits run_gradient(Harness& h, DType t) {
  constexpr int64_t n = 3 * kPieceElements + 77;
  const Array sums = random_array(DType::F32, {n}, 1);
  const Array gradient(t, {n}), partials(DType::F64, {4});
  h.kernels->submit(h.stream, RoundGradient{gradient, sums, {}, {}});
  h.kernels->submit(h.stream, SquaredNormPieces{partials, gradient});
  Bits bits;
  append(bits, gradient);
  append(bits, partials);
  return bits;
}

}  // namespace

Bits linear_bits(Harness& h, DType t) {
  Bits bits;
  for (const auto& [n, c, oc] :
       {std::array<int64_t, 3>{130, 1100, 210}, {1030, 33, 50}, {3, 3100, 49}, {300, 40, 48}}) {
    const Array x = random_array(t, {n, c}, 1), w = random_array(t, {oc, c}, 2);
    const Array b = random_array(t, {oc}, 3), y(t, {n, oc}), dx = random_array(t, {n, c}, 4);
    const Array dw = random_array(DType::F32, {oc, c}, 5), db = random_array(DType::F32, {oc}, 6);
    h.kernels->submit(h.stream, LinearForward{y, x, w, b});
    h.kernels->submit(h.stream, LinearBackwardInput{dx, y, w, Write::Add});
    h.kernels->submit(h.stream, LinearBackwardWeight{dw, db, y, x, Write::Add});
    for (const Array* a : {&y, &dx, &dw, &db}) append(bits, *a);
  }
  return bits;
}

Bits bias_gradient_bits(Harness& h, DType t) {
  constexpr int64_t n = 300, c = 40, oc = 64;
  const Array x = random_array(t, {n, c}, 1), dy = random_array(t, {n, oc}, 2);
  const Array dw(DType::F32, {oc, c}), dbias(DType::F32, {oc});
  h.kernels->submit(h.stream, LinearBackwardWeight{dw, dbias, dy, x, Write::Store});
  return dbias.raw();
}

std::span<const BitCase> bit_cases() {
  static const BitCase kCases[] = {{"linear", linear_bits},
                                   {"linear_activation", run_linear_activation},
                                   {"layer_norm", run_layer_norm},
                                   {"rms_norm", run_rms_norm},
                                   {"rotary_and_swiglu", run_rotary_and_swiglu},
                                   {"elementwise", run_elementwise},
                                   {"rows", run_rows},
                                   {"embedding", run_embedding},
                                   {"attention", run_attention},
                                   {"loss", run_loss},
                                   {"sliced_loss", run_sliced_loss},
                                   {"gradient", run_gradient}};
  return kCases;
}

}  // namespace ebb::test
