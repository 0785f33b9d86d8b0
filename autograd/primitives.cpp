#include "autograd/primitives.h"

#include <array>
#include <string>

#include "device/kernels.h"

namespace ebb {
namespace {

Shape with_columns(const Shape& shape, int64_t columns) {
  switch (shape.rank()) {
    case 1:
      return {columns};
    case 2:
      return {shape[0], columns};
    case 3:
      return {shape[0], shape[1], columns};
    default:
      return {shape[0], shape[1], shape[2], columns};
  }
}

/// A linear layer that computes y from x.
struct LinearLayer {
  Variable y, x;
  bool has_bias;
  std::optional<Variable> residual;

  void forward(const Forward& f) const {
    const Tensor bias = has_bias ? f.weight(1) : Tensor{};
    const Tensor added = residual ? f.value(*residual) : Tensor{};
    f.submit(LinearForward{f.value(y), f.value(x), f.weight(0), bias, added});
  }
  void backward_weight(const Backward& b) const {
    const GradientTarget dw = b.weight_gradient(0);
    const Tensor dbias = has_bias ? b.weight_gradient(1).sums : Tensor{};
    b.submit(LinearBackwardWeight{dw.sums, dbias, b.gradient(y), b.value(x), dw.write});
  }
  void backward_input(const Backward& b) const {
    if (!x.has_gradient()) return;
    const GradientTarget dx = b.input_gradient(x);
    b.submit(LinearBackwardInput{dx.sums, b.gradient(y), b.weight(0), dx.write});
  }
  /// The last part of the backward, because the gradients of y and of the residual share memory.
  void backward_residual(const Backward& b) const {
    if (residual) b.accumulate_gradient(*residual, y);
  }
};

/// Opens the call of a linear layer, and makes its output.
LinearLayer begin_linear(Tape& tape, Variable x, ParameterId weight,
                         std::optional<ParameterId> bias, std::optional<Variable> residual) {
  const WeightUse use{weight, x.has_gradient()};
  if (bias) {
    tape.begin_call("linear", {use, {*bias, false}});
  } else {
    tape.begin_call("linear", {use});
  }
  const Shape shape = with_columns(x.value.shape, tape.weight(0).dim(0));
  const Variable y = tape.output(shape, x.value.dtype);
  EBB_CHECK_SHAPES(
      !residual || (residual->value.shape == shape && residual->value.dtype == y.value.dtype),
      "linear: a residual of the shape and type of the result, not " + to_string(residual->value) +
          " for " + to_string(y.value));
  return {y, x, bias.has_value(), residual};
}

/// The target of x's gradient, or memory that is not read if x is an input.
GradientTarget gradient_or_scratch(const Backward& b, const Variable& x) {
  if (x.has_gradient()) return b.input_gradient(x);
  return {b.scratch(x.value.shape, x.value.dtype)};
}

/// Memory for the result of attention over qkv (B, T, (NH + 2 NKV) D).
Variable attention_output(Tape& tape, const Variable& qkv, const AttentionShape& shape) {
  EBB_CHECK_TENSORS(qkv.value.shape.rank() == 3 && shape.num_heads > 0 && shape.kv_heads() > 0,
                    "attention: (B, T, (NH + 2 NKV) D) of " + std::to_string(shape.num_heads) +
                        " heads of queries, " + std::to_string(shape.kv_heads()) + " of keys",
                    qkv.value);
  const int64_t head_size = qkv.value.dim(2) / (shape.num_heads + 2 * shape.kv_heads());
  return tape.output({qkv.value.dim(0), qkv.value.dim(1), shape.num_heads * head_size},
                     qkv.value.dtype);
}

}  // namespace

Variable linear(Tape& tape, Variable x, ParameterId weight, std::optional<ParameterId> bias,
                std::optional<Variable> residual) {
  const LinearLayer layer = begin_linear(tape, x, weight, bias, residual);
  tape.end_call([layer](const Forward& f) { layer.forward(f); },
                [layer](const Backward& b) {
                  layer.backward_weight(b);
                  layer.backward_input(b);
                  layer.backward_residual(b);
                });
  return layer.y;
}

Activated linear_activation(Tape& tape, Variable x, ParameterId weight,
                            std::optional<ParameterId> bias, Activation kind) {
  const Variable before = linear(tape, x, weight, bias);
  const Variable after = activation(tape, before, kind);  // its backward is that of the next layer
  return {before, after, kind};
}

Variable activation_linear(Tape& tape, const Activated& x, ParameterId weight,
                           std::optional<ParameterId> bias, std::optional<Variable> residual) {
  const LinearLayer layer = begin_linear(tape, x.after, weight, bias, residual);
  tape.end_call([layer](const Forward& f) { layer.forward(f); },
                [layer, x](const Backward& b) {
                  layer.backward_weight(b);
                  const GradientTarget dbefore = b.input_gradient(x.before);
                  EBB_CHECK(dbefore.write == Write::Store,
                            "only one linear layer may take an activation");
                  b.submit(ActivationLinearBackward{dbefore.sums, b.gradient(layer.y), b.weight(0),
                                                    b.value(x.before), x.kind});
                  layer.backward_residual(b);
                });
  return layer.y;
}

Variable layer_norm(Tape& tape, Variable x, ParameterId weight, ParameterId bias, float epsilon) {
  tape.begin_call("layer_norm", {{weight, true}, {bias, false}});
  const Variable y = tape.output(x.value.shape, x.value.dtype);
  const Variable mean = tape.output({x.value.rows()}, DType::F32);
  const Variable rstd = tape.output({x.value.rows()}, DType::F32);
  tape.end_call(
      [=](const Forward& f) {
        f.submit(LayerNormForward{f.value(y), f.value(mean), f.value(rstd), f.value(x), f.weight(0),
                                  f.weight(1), epsilon});
      },
      [=](const Backward& b) {
        const GradientTarget dw = b.weight_gradient(0);
        const GradientTarget db = b.weight_gradient(1);
        const GradientTarget dx = gradient_or_scratch(b, x);
        b.submit(LayerNormBackward{dx.sums, dx.write, dw.sums, db.sums, dw.write, b.gradient(y),
                                   b.value(x), b.weight(0), b.value(mean), b.value(rstd)});
      });
  return y;
}

Variable rms_norm(Tape& tape, Variable x, ParameterId weight, float epsilon) {
  tape.begin_call("rms_norm", {{weight, true}});
  const Variable y = tape.output(x.value.shape, x.value.dtype);
  const Variable rstd = tape.output({x.value.rows()}, DType::F32);
  tape.end_call(
      [=](const Forward& f) {
        f.submit(RmsNormForward{f.value(y), f.value(rstd), f.value(x), f.weight(0), epsilon});
      },
      [=](const Backward& b) {
        const GradientTarget dw = b.weight_gradient(0);
        const GradientTarget dx = gradient_or_scratch(b, x);
        b.submit(RmsNormBackward{dx.sums, dx.write, dw.sums, dw.write, b.gradient(y), b.value(x),
                                 b.weight(0), b.value(rstd)});
      });
  return y;
}

Variable head_norm(Tape& tape, Variable qkv, ParameterId query_weight, ParameterId key_weight,
                   HeadCounts heads, float epsilon) {
  tape.begin_call("head_norm", {{query_weight, true}, {key_weight, true}});
  const Variable y = tape.output(qkv.value.shape, qkv.value.dtype);
  const Variable rstd = tape.output({qkv.value.rows(), heads.queries + heads.keys}, DType::F32);
  tape.end_call(
      [=](const Forward& f) {
        f.submit(HeadNormForward{f.value(y), f.value(rstd), f.value(qkv), f.weight(0), f.weight(1),
                                 heads, epsilon});
      },
      [=](const Backward& b) {
        const GradientTarget dwq = b.weight_gradient(0), dwk = b.weight_gradient(1);
        b.submit(HeadNormBackward{b.own_gradient(y), dwq.sums, dwk.sums, dwq.write, b.value(qkv),
                                  b.weight(0), b.weight(1), b.value(rstd), heads});
        b.accumulate_gradient(qkv, y);
      });
  return y;
}

Variable rotary_table(Tape& tape, Tensor positions, std::span<const double> frequencies,
                      double factor) {
  tape.begin_call("rotary_table", {});
  const int64_t columns = 2 * static_cast<int64_t>(frequencies.size());
  const Variable table = tape.output({positions.num_elements(), columns}, DType::F32);
  tape.submit(RotaryTable{table.value, positions, frequencies, factor});
  tape.end_call();
  return table;
}

Variable rotary(Tape& tape, Variable x, Tensor table, int64_t num_heads) {
  tape.begin_call("rotary", {});
  const Variable y = tape.output_in_place(x);
  tape.end_call(
      [=](const Forward& f) {
        f.submit(ApplyRotary{f.value(y), table, num_heads, RotaryDirection::Forward});
      },
      [=](const Backward& b) {
        b.submit(ApplyRotary{b.own_gradient(y), table, num_heads, RotaryDirection::Backward});
        b.accumulate_gradient(x, y);
      });
  return y;
}

Variable swiglu(Tape& tape, Variable x) {
  tape.begin_call("swiglu", {});
  const Variable y = tape.output(with_columns(x.value.shape, x.value.columns() / 2), x.value.dtype);
  tape.end_call(
      [=](const Forward& f) {
        f.submit(SwigluForward{f.value(y), f.value(x)});
      },
      [=](const Backward& b) {
        if (!x.has_gradient()) return;
        const GradientTarget dx = b.input_gradient(x);
        b.submit(SwigluBackward{dx.sums, b.gradient(y), b.value(x), dx.write});
      });
  return y;
}

Variable activation(Tape& tape, Variable x, Activation kind) {
  tape.begin_call("activation", {});
  const Variable y = tape.output(x.value.shape, x.value.dtype);
  tape.end_call(
      [=](const Forward& f) {
        f.submit(ActivationForward{f.value(y), f.value(x), kind});
      },
      [=](const Backward& b) {
        if (!x.has_gradient()) return;
        const GradientTarget dx = b.input_gradient(x);
        b.submit(ActivationBackward{dx.sums, b.gradient(y), b.value(x), kind, dx.write});
      });
  return y;
}

Variable add(Tape& tape, Variable a, Variable b) {
  EBB_CHECK_SHAPES(
      a.value.shape == b.value.shape && a.value.dtype == b.value.dtype,
      "add: terms of one shape and type, not " + to_string(a.value) + " and " + to_string(b.value));
  tape.begin_call("add", {});
  const Variable y = tape.output(a.value.shape, a.value.dtype);
  tape.end_call(
      [=](const Forward& f) {
        f.submit(Add{f.value(y), f.value(a), f.value(b)});
      },
      [=](const Backward& back) {
        back.accumulate_gradient(b, y);
        back.accumulate_gradient(a, y);
      });
  return y;
}

Variable multiply(Tape& tape, Variable a, Variable b) {
  EBB_CHECK_SHAPES(a.value.shape == b.value.shape && a.value.dtype == b.value.dtype,
                   "multiply: factors of one shape and type, not " + to_string(a.value) + " and " +
                       to_string(b.value));
  tape.begin_call("multiply", {});
  const Variable y = tape.output(a.value.shape, a.value.dtype);
  tape.end_call(
      [=](const Forward& f) {
        f.submit(Multiply{f.value(y), f.value(a), f.value(b), Write::Store});
      },
      [=](const Backward& back) {
        const auto add_gradient = [&](const Variable& of, const Variable& other) {
          if (!of.has_gradient()) return;
          const GradientTarget target = back.input_gradient(of);
          back.submit(Multiply{target.sums, back.gradient(y), back.value(other), target.write});
        };
        add_gradient(b, a);
        add_gradient(a, b);
      });
  return y;
}

Variable softmax(Tape& tape, Variable x) {
  tape.begin_call("softmax", {});
  const Variable y = tape.output(x.value.shape, x.value.dtype);
  tape.end_call(
      [=](const Forward& f) {
        f.submit(SoftmaxForward{f.value(y), f.value(x)});
      },
      [=](const Backward& b) {
        if (!x.has_gradient()) return;
        const GradientTarget dx = b.input_gradient(x);
        b.submit(SoftmaxBackward{dx.sums, b.gradient(y), b.value(y), dx.write});
      });
  return y;
}

Variable concatenate(Tape& tape, std::initializer_list<Variable> parts) {
  EBB_CHECK_SHAPES(parts.size() > 0 && parts.size() <= kMostParts,
                   "concatenate: 1 to " + std::to_string(kMostParts) + " parts, not " +
                       std::to_string(parts.size()));
  struct Parts {
    std::array<Variable, kMostParts> of = {};
    size_t count = 0;
  } all;
  const Tensor& first = parts.begin()->value;
  int64_t columns = 0;
  for (const Variable& part : parts) {
    EBB_CHECK_SHAPES(part.value.dtype == first.dtype &&
                         with_columns(part.value.shape, 1) == with_columns(first.shape, 1),
                     "concatenate: parts of one type that differ only in their last dimension, "
                     "not " +
                         to_string(first) + " and " + to_string(part.value));
    all.of[all.count++] = part;
    columns += part.value.columns();
  }
  tape.begin_call("concatenate", {});
  const Variable y = tape.output(with_columns(first.shape, columns), first.dtype);
  tape.end_call(
      [y, all](const Forward& f) {
        int64_t column = 0;
        for (size_t i = 0; i < all.count; ++i) {
          const Tensor part = f.value(all.of[i]);
          f.submit(CopyColumns{f.value(y), part, column, 0, part.columns(), Write::Store});
          column += part.columns();
        }
      },
      [y, all](const Backward& b) {
        int64_t column = 0;
        for (size_t i = 0; i < all.count; ++i) {
          const Variable& part = all.of[i];
          const int64_t width = part.value.columns();
          if (part.has_gradient()) {
            const GradientTarget dx = b.input_gradient(part);
            b.submit(CopyColumns{dx.sums, b.gradient(y), 0, column, width, dx.write});
          }
          column += width;
        }
      });
  return y;
}

Variable dropout(Tape& tape, Variable x, uint32_t site) {
  const Dropout drop = tape.dropout_at(site, x.value.dim(0));
  if (!drop) return x;
  tape.begin_call("dropout", {});
  const Variable y = tape.output_in_place(x);
  tape.end_call(
      [=](const Forward& f) {
        f.submit(ApplyDropout{f.value(y), drop});
      },
      [=](const Backward& b) {
        b.submit(ApplyDropout{b.own_gradient(y), drop});
        b.accumulate_gradient(x, y);
      });
  return y;
}

Variable embedding(Tape& tape, Tensor tokens, Tensor positions, ParameterId wte, ParameterId wpe,
                   int64_t channels, DType type) {
  tape.begin_call("embedding", {{wte, false}, {wpe, false}});
  const Variable y = tape.output({tokens.dim(0), tokens.dim(1), channels}, type);
  tape.end_call(
      [=](const Forward& f) {
        f.submit(EmbeddingForward{f.value(y), tokens, positions, f.weight(0), f.weight(1)});
      },
      [=](const Backward& b) {
        const Tensor dy = b.gradient(y);
        const GradientTarget dwte = b.weight_gradient(0);
        b.submit(EmbeddingBackward{dwte.sums, dy, tokens, dwte.write});
        const GradientTarget dwpe = b.weight_gradient(1);
        b.submit(EmbeddingBackward{dwpe.sums, dy, positions, dwpe.write});
      });
  return y;
}

Variable embedding(Tape& tape, Tensor tokens, ParameterId table, int64_t channels, DType type) {
  tape.begin_call("embedding", {{table, false}});
  const Variable y = tape.output({tokens.dim(0), tokens.dim(1), channels}, type);
  tape.end_call(
      [=](const Forward& f) {
        f.submit(EmbeddingForward{f.value(y), tokens, {}, f.weight(0), {}});
      },
      [=](const Backward& b) {
        const GradientTarget dw = b.weight_gradient(0);
        b.submit(EmbeddingBackward{dw.sums, b.gradient(y), tokens, dw.write});
      });
  return y;
}

Variable attention(Tape& tape, Variable qkv, const AttentionShape& shape) {
  tape.begin_call("attention", {});
  const Variable out = attention_output(tape, qkv, shape);
  const Variable log_sum_exp =
      tape.output({qkv.value.dim(0), shape.num_heads, qkv.value.dim(1)}, DType::F32);
  tape.end_call(
      [=](const Forward& f) {
        f.submit(AttentionForward{f.value(out), f.value(log_sum_exp), f.value(qkv), shape});
      },
      [=](const Backward& b) {
        const GradientTarget dqkv = b.input_gradient(qkv);
        EBB_CHECK(dqkv.write == Write::Store, "attention must be the only user of its projections");
        b.submit(AttentionBackward{dqkv.sums, b.gradient(out), b.value(qkv), b.value(out),
                                   b.value(log_sum_exp), shape});
      });
  return out;
}

Variable attention(Tape& tape, Variable qkv, const AttentionShape& shape, Tensor cache,
                   Tensor positions) {
  EBB_CHECK(!tape.training(), "attention with a cache has no backward: it is for inference");
  tape.begin_call("attention", {});
  const Variable out = attention_output(tape, qkv, shape);
  tape.submit(AttentionCached{out.value, qkv.value, cache, positions, shape});
  tape.end_call();
  return out;
}

void cross_entropy(Tape& tape, Variable logits, Tensor targets) {
  tape.begin_loss_call("cross_entropy", {});
  const int64_t rows = logits.value.rows(), classes = logits.value.columns();
  tape.store_logits(rows, 0, {0, classes}, logits.value.reshape({rows, classes}));
  if (!tape.requests_loss()) return tape.end_call();
  const Tensor losses = tape.scratch({logits.value.rows()}, DType::F32);
  if (tape.training()) {
    const GradientTarget gradient = tape.input_gradient(logits);
    EBB_CHECK(gradient.write == Write::Store, "logits go into one loss only");
    tape.stream().copy(gradient.sums.data, logits.value.data, logits.value.bytes(),
                       CopyKind::Within);
    tape.submit(CrossEntropy{losses, gradient.sums, targets, tape.loss_gradient_scale()});
  } else {
    const Tensor copy = tape.scratch(logits.value.shape, logits.value.dtype);
    tape.stream().copy(copy.data, logits.value.data, copy.bytes(), CopyKind::Within);
    tape.submit(CrossEntropy{losses, copy, targets, std::nullopt});
  }
  tape.add_losses(losses);
  tape.end_call();
}

void mean_squared_error(Tape& tape, Variable x, Tensor targets) {
  tape.begin_loss_call("mean_squared_error", {});
  const int64_t rows = x.value.rows(), columns = x.value.columns();
  tape.store_logits(rows, 0, {0, columns}, x.value.reshape({rows, columns}));
  if (!tape.requests_loss()) return tape.end_call();
  const Tensor losses = tape.scratch({rows}, DType::F32);
  GradientTarget dx;
  if (tape.training() && x.has_gradient()) dx = tape.input_gradient(x);
  tape.submit(
      MeanSquaredError{losses, dx.sums, x.value, targets, dx.write, tape.loss_gradient_scale()});
  tape.add_losses(losses);
  tape.end_call();
}

}  // namespace ebb
