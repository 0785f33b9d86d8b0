#include "autograd/primitives.h"

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

/// Opens the call of a linear layer. Returns its bias, or null.
Tensor begin_linear(Tape& tape, ParameterId weight, std::optional<ParameterId> bias,
                    bool read_in_backward) {
  if (!bias) {
    tape.begin_call("linear", {{weight, read_in_backward}});
    return {};
  }
  tape.begin_call("linear", {{weight, read_in_backward}, {*bias, false}});
  return tape.weight(1);
}

void linear_backward_weight(const Backward& b, const Tensor& dy, const Tensor& x, bool has_bias) {
  const GradientTarget dw = b.weight_gradient(0);
  const Tensor dbias = has_bias ? b.weight_gradient(1).sums : Tensor{};
  b.submit(LinearBackwardWeight{dw.sums, dbias, dy, x, dw.write});
}

/// Closes the call of a linear layer: y is computed from x.
void end_linear(Tape& tape, const Variable& y, const Variable& x, bool has_bias) {
  tape.end_call([x, y, has_bias](const Backward& b) {
    const Tensor dy = b.gradient(y);
    linear_backward_weight(b, dy, x.value, has_bias);
    if (!x.has_gradient()) return;
    const GradientTarget dx = b.input_gradient(x);
    b.submit(LinearBackwardInput{dx.sums, dy, b.weight(0), dx.write});
  });
}

}  // namespace

Variable linear(Tape& tape, Variable x, ParameterId weight, std::optional<ParameterId> bias) {
  const Tensor bias_value = begin_linear(tape, weight, bias, x.has_gradient());
  const Tensor w = tape.weight(0);
  const Variable y = tape.output(with_columns(x.value.shape, w.dim(0)), x.value.dtype);
  tape.submit(LinearForward{y.value, x.value, w, bias_value});
  end_linear(tape, y, x, bias.has_value());
  return y;
}

Activated linear_activation(Tape& tape, Variable x, ParameterId weight,
                            std::optional<ParameterId> bias, Activation kind) {
  const Tensor bias_value = begin_linear(tape, weight, bias, x.has_gradient());
  const Tensor w = tape.weight(0);
  const Shape shape = with_columns(x.value.shape, w.dim(0));
  const Variable before = tape.output(shape, x.value.dtype);
  const Tensor y = tape.output(shape, x.value.dtype).value;
  tape.submit(LinearActivationForward{y, before.value, x.value, w, bias_value, kind});
  end_linear(tape, before, x, bias.has_value());
  return {before, y, kind};
}

Variable activation_linear(Tape& tape, const Activated& x, ParameterId weight,
                           std::optional<ParameterId> bias) {
  const Tensor bias_value = begin_linear(tape, weight, bias, true);
  const Tensor w = tape.weight(0);
  const Variable y = tape.output(with_columns(x.value.shape, w.dim(0)), x.value.dtype);
  tape.submit(LinearForward{y.value, x.value, w, bias_value});
  tape.end_call([x, y, has_bias = bias.has_value()](const Backward& b) {
    const Tensor dy = b.gradient(y);
    linear_backward_weight(b, dy, x.value, has_bias);
    const GradientTarget dbefore = b.input_gradient(x.before);
    EBB_CHECK(dbefore.write == Write::Store, "only one linear layer may take an activation");
    b.submit(ActivationLinearBackward{dbefore.sums, dy, b.weight(0), x.before.value, x.kind});
  });
  return y;
}

Variable layer_norm(Tape& tape, Variable x, ParameterId weight, ParameterId bias, float epsilon) {
  tape.begin_call("layer_norm", {{weight, true}, {bias, false}});
  const Variable y = tape.output(x.value.shape, x.value.dtype);
  const Variable mean = tape.output({x.value.rows()}, DType::F32);
  const Variable rstd = tape.output({x.value.rows()}, DType::F32);
  tape.submit(LayerNormForward{y.value, mean.value, rstd.value, x.value, tape.weight(0),
                               tape.weight(1), epsilon});
  tape.end_call([x, y, mean = mean.value, rstd = rstd.value](const Backward& b) {
    const GradientTarget dw = b.weight_gradient(0);
    const GradientTarget db = b.weight_gradient(1);
    const GradientTarget dx = x.has_gradient()
                                  ? b.input_gradient(x)
                                  : GradientTarget{b.scratch(x.value.shape, x.value.dtype)};
    b.submit(LayerNormBackward{dx.sums, dx.write, dw.sums, db.sums, dw.write, b.gradient(y),
                               x.value, b.weight(0), mean, rstd});
  });
  return y;
}

Variable rms_norm(Tape& tape, Variable x, ParameterId weight, float epsilon) {
  tape.begin_call("rms_norm", {{weight, true}});
  const Variable y = tape.output(x.value.shape, x.value.dtype);
  const Variable rstd = tape.output({x.value.rows()}, DType::F32);
  tape.submit(RmsNormForward{y.value, rstd.value, x.value, tape.weight(0), epsilon});
  tape.end_call([x, y, rstd = rstd.value](const Backward& b) {
    const GradientTarget dw = b.weight_gradient(0);
    const GradientTarget dx = x.has_gradient()
                                  ? b.input_gradient(x)
                                  : GradientTarget{b.scratch(x.value.shape, x.value.dtype)};
    b.submit(RmsNormBackward{dx.sums, dx.write, dw.sums, dw.write, b.gradient(y), x.value,
                             b.weight(0), rstd});
  });
  return y;
}

Variable head_norm(Tape& tape, Variable qkv, ParameterId query_weight, ParameterId key_weight,
                   HeadCounts heads, float epsilon) {
  tape.begin_call("head_norm", {{query_weight, true}, {key_weight, true}});
  const Variable y = tape.output(qkv.value.shape, qkv.value.dtype);
  const Variable rstd = tape.output({qkv.value.rows(), heads.queries + heads.keys}, DType::F32);
  tape.submit(HeadNormForward{y.value, rstd.value, qkv.value, tape.weight(0), tape.weight(1), heads,
                              epsilon});
  tape.end_call([qkv, y, rstd = rstd.value, heads](const Backward& b) {
    const GradientTarget dwq = b.weight_gradient(0), dwk = b.weight_gradient(1);
    b.submit(HeadNormBackward{b.own_gradient(y), dwq.sums, dwk.sums, dwq.write, qkv.value,
                              b.weight(0), b.weight(1), rstd, heads});
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
  tape.submit(ApplyRotary{y.value, table, num_heads, RotaryDirection::Forward});
  tape.end_call([x, y, table, num_heads](const Backward& b) {
    b.submit(ApplyRotary{b.own_gradient(y), table, num_heads, RotaryDirection::Backward});
    b.accumulate_gradient(x, y);
  });
  return y;
}

Variable swiglu(Tape& tape, Variable x) {
  tape.begin_call("swiglu", {});
  const Variable y = tape.output(with_columns(x.value.shape, x.value.columns() / 2), x.value.dtype);
  tape.submit(SwigluForward{y.value, x.value});
  tape.end_call([x, y](const Backward& b) {
    if (!x.has_gradient()) return;
    const GradientTarget dx = b.input_gradient(x);
    b.submit(SwigluBackward{dx.sums, b.gradient(y), x.value, dx.write});
  });
  return y;
}

Variable activation(Tape& tape, Variable x, Activation kind) {
  tape.begin_call("activation", {});
  const Variable y = tape.output(x.value.shape, x.value.dtype);
  tape.submit(ActivationForward{y.value, x.value, kind});
  tape.end_call([x, y, kind](const Backward& b) {
    if (!x.has_gradient()) return;
    const GradientTarget dx = b.input_gradient(x);
    b.submit(ActivationBackward{dx.sums, b.gradient(y), x.value, kind, dx.write});
  });
  return y;
}

Variable add(Tape& tape, Variable a, Variable b) {
  tape.begin_call("add", {});
  const Variable y = tape.output(a.value.shape, a.value.dtype);
  tape.submit(Add{y.value, a.value, b.value});
  tape.end_call([a, b, y](const Backward& back) {
    back.accumulate_gradient(b, y);
    back.accumulate_gradient(a, y);
  });
  return y;
}

Variable dropout(Tape& tape, Variable x, uint32_t site) {
  const Dropout drop = tape.dropout_at(site, x.value.dim(0));
  if (!drop) return x;
  tape.begin_call("dropout", {});
  const Variable y = tape.output_in_place(x);
  tape.submit(ApplyDropout{y.value, drop});
  tape.end_call([x, y, drop](const Backward& b) {
    b.submit(ApplyDropout{b.own_gradient(y), drop});
    b.accumulate_gradient(x, y);
  });
  return y;
}

Variable embedding(Tape& tape, Tensor tokens, Tensor positions, ParameterId wte, ParameterId wpe,
                   int64_t channels, DType type) {
  tape.begin_call("embedding", {{wte, false}, {wpe, false}});
  const Variable y = tape.output({tokens.dim(0), tokens.dim(1), channels}, type);
  tape.submit(EmbeddingForward{y.value, tokens, positions, tape.weight(0), tape.weight(1)});
  tape.end_call([tokens, positions, y](const Backward& b) {
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
  tape.submit(EmbeddingForward{y.value, tokens, {}, tape.weight(0), {}});
  tape.end_call([tokens, y](const Backward& b) {
    const GradientTarget dtable = b.weight_gradient(0);
    b.submit(EmbeddingBackward{dtable.sums, b.gradient(y), tokens, dtable.write});
  });
  return y;
}

Variable attention(Tape& tape, Variable qkv, const AttentionShape& shape) {
  const int64_t batch = qkv.value.dim(0), length = qkv.value.dim(1);
  tape.begin_call("attention", {});
  const int64_t head_size = qkv.value.dim(2) / (shape.num_heads + 2 * shape.kv_heads());
  const Variable out = tape.output({batch, length, shape.num_heads * head_size}, qkv.value.dtype);
  const Variable log_sum_exp = tape.output({batch, shape.num_heads, length}, DType::F32);
  tape.submit(AttentionForward{out.value, log_sum_exp.value, qkv.value, shape});
  tape.end_call([qkv, out, log_sum_exp = log_sum_exp.value, shape](const Backward& b) {
    const GradientTarget dqkv = b.input_gradient(qkv);
    EBB_CHECK(dqkv.write == Write::Store, "attention must be the only user of its projections");
    b.submit(
        AttentionBackward{dqkv.sums, b.gradient(out), qkv.value, out.value, log_sum_exp, shape});
  });
  return out;
}

Variable attention(Tape& tape, Variable qkv, const AttentionShape& shape, Tensor cache,
                   Tensor positions) {
  EBB_CHECK(!tape.training(), "attention with a cache has no backward: it is for inference");
  const int64_t batch = qkv.value.dim(0), length = qkv.value.dim(1);
  tape.begin_call("attention", {});
  const int64_t head_size = qkv.value.dim(2) / (shape.num_heads + 2 * shape.kv_heads());
  const Variable out = tape.output({batch, length, shape.num_heads * head_size}, qkv.value.dtype);
  tape.submit(AttentionCached{out.value, qkv.value, cache, positions, shape});
  tape.end_call();
  return out;
}

void cross_entropy(Tape& tape, Variable logits, Tensor targets) {
  tape.begin_loss_call("cross_entropy", {});
  tape.store_logits(logits.value.rows(), 0, 0,
                    logits.value.reshape({logits.value.rows(), logits.value.columns()}));
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

}  // namespace ebb
