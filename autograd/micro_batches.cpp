#include "autograd/micro_batches.h"

#include <fmt/format.h>

#include "device/errors.h"

namespace ebb {
namespace {

// Each stack takes some pages of host memory.
constexpr uint32_t kMostStacks = 4096;

}  // namespace

/// Lets the next micro-batch run at the yield points of one.
class MicroBatches::Yielder : public YieldPoint {
 public:
  Yielder(Coroutines& coroutines, uint32_t index) : coroutines_(coroutines), index_(index) {}
  void begin(OnMicroBatch& on_micro_batch) {
    on_micro_batch_ = &on_micro_batch;
    on_micro_batch(index_);
  }
  void reached() override {
    coroutines_.yield(index_);
    (*on_micro_batch_)(index_);
  }

 private:
  Coroutines& coroutines_;
  const uint32_t index_;
  OnMicroBatch* on_micro_batch_ = nullptr;
};

MicroBatches::MicroBatches(const Model& model, Device& device, Stream& compute, Hooks& hooks,
                           Arena& arena, bool vertical, uint32_t most)
    : model_(model), vertical_(vertical), num_inputs_(model.inputs().size()) {
  if (vertical && most > kMostStacks) {
    throw ConfigError(fmt::format(
        "{} micro-batches in vertical order need a stack each, and at most {} are allowed: "
        "use `micro_batch_order` horizontal, or fewer micro-batches (`gradient_accumulation`, "
        "`evaluation_batches`) of a larger `micro_batch_size`",
        most, kMostStacks));
  }
  for (uint32_t k = 0; k < (vertical ? most : 1); ++k) {
    tapes_.push_back(std::make_unique<Tape>(device, compute, hooks, arena));
  }
  if (!vertical) return;
  coroutines_ = std::make_unique<Coroutines>(most);
  for (uint32_t k = 0; k < most; ++k)
    yielders_.push_back(std::make_unique<Yielder>(*coroutines_, k));
}

MicroBatches::~MicroBatches() = default;

void MicroBatches::begin(const MicroBatchesOptions& run, uint32_t k, Tape& tape,
                         YieldPoint* yield_point) const {
  TapeOptions options = run.tape;
  options.yield_point = yield_point;
  options.micro_batch = k;
  tape.begin_micro_batch(options, run.loss_total, k == 0 ? Write::Store : Write::Add,
                         run.loss_gradient_scale);
}

void MicroBatches::forward(const MicroBatchesOptions& run, uint32_t k, Tape& tape) const {
  model_.forward(tape, run.inputs.subspan(k * num_inputs_, num_inputs_));
}

void MicroBatches::run_horizontally(const MicroBatchesOptions& run, OnMicroBatch& on_micro_batch) {
  for (uint32_t k = 0; k < run.count; ++k) {
    on_micro_batch(k);
    begin(run, k, *tapes_[0], nullptr);
    forward(run, k, *tapes_[0]);
    tapes_[0]->begin_backward();
    tapes_[0]->run_backward(0);
    tapes_[0]->end_micro_batch();
  }
}

void MicroBatches::run_vertically(const MicroBatchesOptions& run, OnMicroBatch& on_micro_batch) {
  for (uint32_t k = 0; k < run.count; ++k) begin(run, k, *tapes_[k], yielders_[k].get());
  coroutines_->run(run.count, [&](uint32_t k) {
    yielders_[k]->begin(on_micro_batch);
    forward(run, k, *tapes_[k]);
  });
  const size_t num_segments = tapes_[0]->num_segments();
  for (uint32_t k = 0; k < run.count; ++k) {
    EBB_CHECK(tapes_[k]->num_segments() == num_segments,
              "the micro-batches of a step must run the same layers");
    tapes_[k]->begin_backward();
  }
  for (size_t segment = num_segments; segment-- > 0;) {
    for (uint32_t k = 0; k < run.count; ++k) {
      on_micro_batch(k);
      tapes_[k]->run_backward(segment);
    }
  }
  for (uint32_t k = 0; k < run.count; ++k) tapes_[k]->end_micro_batch();
}

void MicroBatches::run(const MicroBatchesOptions& run, OnMicroBatch on_micro_batch) {
  if (vertical_) {
    run_vertically(run, on_micro_batch);
  } else {
    run_horizontally(run, on_micro_batch);
  }
}

}  // namespace ebb
