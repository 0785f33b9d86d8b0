// The head of a language model: a matrix product and its loss, cut so that the logits never exist
// whole, nor the weight where it is large.
#include <algorithm>
#include <optional>

#include "autograd/primitives.h"
#include "device/kernels.h"

namespace ebb {
namespace {

/// How many of `count` rows of `width` fit into `elements`: a multiple of 64 if at least 64 fit.
int64_t slice_of(int64_t count, int64_t width, int64_t elements) {
  const int64_t most = std::max<int64_t>(1, elements / width);
  return std::min(count, most >= 64 ? most / 64 * 64 : most);
}

class Classifier {
 public:
  Classifier(Tape& tape, Variable x, ParameterId weight, int64_t vocabulary, Tensor targets,
             const ClassifierCut& cut, std::optional<ParameterId> bias)
      : tape_(tape),
        x_(x),
        weight_(weight),
        bias_(bias),
        vocabulary_(vocabulary),
        num_rows_(x.value.rows()),
        channels_(x.value.columns()),
        targets_(targets.reshape({num_rows_, 1})),
        weight_rows_(cut.weight_rows(vocabulary, channels_)),
        first_row_(tape.first_requested_row(num_rows_)),
        logits_rows_(cut.logits_rows(num_rows_ - first_row_, weight_rows_)),
        column_multiple_(cut.logits.column_multiple) {}

  /// The stages first find the loss and the softmax statistics, which every gradient needs, slice
  /// by slice. Then they compute the gradients from the last slice to the first: the weight of the
  /// last one is still on the device.
  void run() {
    if (weight_rows_ >= vocabulary_) return run_at_once();
    const auto num = static_cast<uint32_t>(num_slices() * (tape_.training() ? 2 : 1));
    tape_.run_in_stages(num, [c = *this, num](uint32_t stage) mutable {
      c.run_stage(stage);
      if (stage + 1 == num) c.tape_.release(c.statistics_);
    });
  }

 private:
  /// Some rows of x with their logits and gradients.
  struct Rows {
    int64_t first, count;
    Tensor of(const Tensor& all) const { return all.slice_rows(first, count); }
    Tensor vector_of(const Tensor& all) const { return of(all).reshape({count}); }
  };
  template <class Body>
  void for_each_rows(const Body& body) const {
    for (int64_t first = first_row_; first < num_rows_; first += logits_rows_) {
      body(Rows{first, std::min(logits_rows_, num_rows_ - first)});
    }
  }
  int64_t num_slices() const { return (vocabulary_ + weight_rows_ - 1) / weight_rows_; }
  RowRange slice(int64_t i) const {
    const int64_t first = i * weight_rows_;
    return {first, std::min(weight_rows_, vocabulary_ - first)};
  }
  /// Opens a call that uses some rows of the weight and of the bias.
  void begin_call(const RowRange& rows, bool continues) {
    const WeightUse weight{.parameter = weight_, .rows = rows, .continues = continues};
    if (!bias_) return tape_.begin_call("classifier logits", {weight});
    const WeightUse bias{.parameter = *bias_, .rows = rows, .continues = continues};
    tape_.begin_call("classifier logits", {weight, bias});
  }
  void begin_loss_call(std::string_view name, const RowRange& rows, bool continues, Phase phase) {
    const WeightUse weight{.parameter = weight_, .rows = rows, .continues = continues};
    if (!bias_) return tape_.begin_loss_call(name, {weight}, phase);
    const WeightUse bias{.parameter = *bias_, .rows = rows, .continues = continues};
    tape_.begin_loss_call(name, {weight, bias}, phase);
  }
  /// Those of the open call.
  Tensor bias() const { return bias_ ? tape_.weight(1) : Tensor{}; }
  Tensor bias_sums() const { return bias_ ? tape_.weight_gradient(1).sums : Tensor{}; }
  Tensor logits_memory(int64_t num_classes) const {
    const int64_t columns =
        (num_classes + column_multiple_ - 1) / column_multiple_ * column_multiple_;
    return tape_.scratch({logits_rows_, columns}, x_.value.dtype);
  }
  void add_weight_gradient(GradientTarget& dw, const Tensor& dbias, const Tensor& logits,
                           const Rows& rows) const {
    tape_.submit(LinearBackwardWeight{dw.sums, dbias, logits, rows.of(x_.value), dw.write});
    dw.write = Write::Add;
  }

  void run_at_once();
  void run_stage(int64_t stage) {
    stage < num_slices() ? add_statistics(stage) : add_gradients(2 * num_slices() - 1 - stage);
  }
  void add_statistics(int64_t i);
  void add_gradients(int64_t i);
  void begin_input_gradient();
  void end_input_gradient();

  Tape& tape_;
  const Variable x_;
  const ParameterId weight_;
  const std::optional<ParameterId> bias_;
  const int64_t vocabulary_, num_rows_, channels_;
  const Tensor targets_;  // (N, 1)
  const int64_t weight_rows_;
  const int64_t first_row_;  // > 0 where only the logits of the last rows are requested
  const int64_t logits_rows_, column_multiple_;
  Variable statistics_;
  Variable dx_sums_;  // fp32, if x has another type
  std::optional<GradientTarget> dx_;
};

void Classifier::run_at_once() {
  begin_loss_call("classifier", {}, false, Phase::Forward);
  const Tensor w = tape_.weight(0), b = bias();
  const Tensor memory = logits_memory(vocabulary_);
  const Tensor losses = tape_.scratch({num_rows_, 1}, DType::F32);
  std::optional<GradientTarget> dw, dx;
  Tensor dbias;
  if (tape_.training()) {
    dw = tape_.weight_gradient(0);
    dbias = bias_sums();
    if (x_.has_gradient()) dx = tape_.input_gradient(x_);
  }
  for_each_rows([&](const Rows& rows) {
    const Tensor logits = memory.slice_rows(0, rows.count);
    tape_.submit(LinearForward{logits, rows.of(x_.value), w, b});
    tape_.store_logits(num_rows_, rows.first, {0, vocabulary_}, logits);
    if (!tape_.requests_loss()) return;
    tape_.submit(CrossEntropy{
        rows.vector_of(losses), logits, rows.vector_of(targets_),
        tape_.training() ? std::optional(tape_.loss_gradient_scale()) : std::nullopt, vocabulary_});
    if (!tape_.training()) return;
    add_weight_gradient(*dw, dbias, logits, rows);
    if (!dx) return;
    tape_.submit(LinearBackwardInput{rows.of(dx->sums), logits, w, dx->write});
  });
  if (tape_.requests_loss()) tape_.add_losses(losses.reshape({num_rows_}));
  tape_.end_call();
}

void Classifier::add_statistics(int64_t i) {
  const RowRange classes = slice(i);
  begin_call(classes, i > 0);
  if (i == 0) statistics_ = tape_.output({num_rows_, 3}, DType::F32);
  const Tensor losses = tape_.scratch({num_rows_, 1}, DType::F32);
  const Tensor memory = logits_memory(classes.count);
  for_each_rows([&](const Rows& rows) {
    const Tensor logits = memory.slice_rows(0, rows.count);
    tape_.submit(LinearForward{logits, rows.of(x_.value), tape_.weight(0), bias()});
    tape_.store_logits(num_rows_, rows.first, classes, logits);
    if (!tape_.requests_loss()) return;
    tape_.submit(CrossEntropyStatistics{rows.vector_of(losses),
                                        rows.of(statistics_.value),
                                        logits,
                                        rows.vector_of(targets_),
                                        {classes.first, classes.count, vocabulary_}});
  });
  if (i + 1 == num_slices() && tape_.requests_loss()) {
    tape_.add_losses(losses.reshape({num_rows_}));
  }
  tape_.end_call();
}

void Classifier::add_gradients(int64_t i) {
  const RowRange classes = slice(i);
  begin_loss_call("classifier gradient", classes, true, Phase::Backward);
  if (i + 1 == num_slices() && x_.has_gradient()) begin_input_gradient();
  const Tensor w = tape_.weight(0), b = bias();
  const Tensor memory = logits_memory(classes.count);
  GradientTarget dw = tape_.weight_gradient(0);
  const Tensor dbias = bias_sums();
  for_each_rows([&](const Rows& rows) {
    const Tensor logits = memory.slice_rows(0, rows.count);
    tape_.submit(LinearForward{logits, rows.of(x_.value), w, b});
    tape_.submit(CrossEntropyGradient{logits,
                                      rows.of(statistics_.value),
                                      rows.vector_of(targets_),
                                      {classes.first, classes.count, vocabulary_},
                                      tape_.loss_gradient_scale()});
    add_weight_gradient(dw, dbias, logits, rows);
    if (!dx_) return;
    tape_.submit(LinearBackwardInput{rows.of(dx_->sums), logits, w, dx_->write});
  });
  if (dx_) dx_->write = Write::Add;
  if (i == 0 && dx_) end_input_gradient();
  tape_.end_call();
}

/// Every slice adds to this gradient in fp32. It is rounded once.
void Classifier::begin_input_gradient() {
  if (x_.value.dtype == DType::F32) {
    dx_ = tape_.input_gradient(x_);
  } else {
    dx_sums_ = tape_.output(x_.value.shape, DType::F32);
    dx_ = GradientTarget{dx_sums_.value, Write::Store};
  }
}

void Classifier::end_input_gradient() {
  if (!dx_sums_.has_gradient()) return;
  const GradientTarget dx = tape_.input_gradient(x_);
  const bool is_first = dx.write == Write::Store;
  const Tensor rounded = is_first ? dx.sums : tape_.scratch(x_.value.shape, x_.value.dtype);
  tape_.submit(RoundGradient{rounded, dx_sums_.value, {}, {}});
  if (!is_first) tape_.submit(Accumulate{dx.sums, rounded});
  tape_.release(dx_sums_);
}

}  // namespace

int64_t ClassifierCut::weight_rows(int64_t vocabulary, int64_t channels) const {
  const int64_t most = slice_of(vocabulary, channels, weight_elements);
  const int64_t num_slices = (vocabulary + most - 1) / most;
  const int64_t even = (vocabulary + num_slices - 1) / num_slices;
  return std::min(most, (even + 63) / 64 * 64);
}

int64_t ClassifierCut::logits_rows(int64_t num_rows, int64_t num_classes) const {
  return slice_of(num_rows, num_classes, logits.most_elements);
}

void classifier_cross_entropy(Tape& tape, Variable x, ParameterId weight, int64_t vocabulary,
                              Tensor targets, std::optional<ClassifierCut> cut,
                              std::optional<ParameterId> bias) {
  if (!cut) cut = ClassifierCut{.logits = tape.kernels().logits_shape()};
  Classifier(tape, x, weight, vocabulary, targets, *cut, bias).run();
}

}  // namespace ebb
