#include "autograd/micro_batches.h"

#include <fmt/format.h>

#include <algorithm>

#include "device/errors.h"

namespace ebb {
namespace {

// Each tape records a whole forward in host memory.
constexpr uint32_t kMostTapes = 4096;

// The parts of a model in messages. Layers have their numbers.
constexpr std::string_view kBegin = "begin()", kEnd = "end()";

}  // namespace

MicroBatches::MicroBatches(Device& device, Stream& compute, Hooks& hooks, Arena& arena,
                           uint32_t together) {
  if (together > kMostTapes) {
    throw ConfigError(fmt::format(
        "{} micro-batches in vertical order need a tape each, and at most {} are allowed: "
        "use `micro_batch_order` horizontal, or fewer micro-batches (`gradient_accumulation`, "
        "`evaluation_batches`) of a larger `micro_batch_size`",
        together, kMostTapes));
  }
  for (uint32_t k = 0; k < together; ++k) {
    running_.push_back({.tape = std::make_unique<Tape>(device, compute, hooks, arena)});
  }
}

void MicroBatches::begin(const MicroBatchesOptions& run, uint32_t first, Together together) {
  const size_t num_inputs = run.inputs.size() / run.count;
  for (Running& m : together) {
    m.index = first++;
    m.inputs = run.inputs.subspan(m.index * num_inputs, num_inputs);
    TapeOptions options = run.tape;
    options.micro_batch = run.first + m.index;
    const Tensor loss{run.losses.data + m.index * sizeof(double), DType::F64, {1}};
    m.tape->begin_micro_batch(options, loss, run.loss_gradient_scale);
  }
}

template <class Part>
void MicroBatches::for_each(std::string_view name, Together together, OnMicroBatch& on_micro_batch,
                            const Part& part) {
  for (Running& m : together) {
    on_micro_batch(m.index);
    try {
      part(m, *m.tape);
    } catch (const ShapeError& error) {
      const int32_t layer = m.tape->layer_at_work();
      throw ShapeError(layer < 0 ? fmt::format("{}: {}", name, error.what())
                                 : fmt::format("layer {}: {}", layer, error.what()));
    }
  }
}

void MicroBatches::run_forward(const Model& model, Together together,
                               OnMicroBatch& on_micro_batch) {
  for_each(kBegin, together, on_micro_batch,
           [&](Running& m, Tape& tape) { m.x = model.begin(tape, m.inputs); });
  for (uint32_t i = 0; i < model.num_layers(); ++i) {
    // Before the first layer, next_layer() runs the stages that begin() left.
    for_each(kBegin, together, on_micro_batch, [&](Running& m, Tape& tape) {
      tape.begin_part();
      // The tape may keep this function until the layer is recomputed.
      const auto layer = [&model, inputs = m.inputs, i](Tape& t, Variable x) {
        return model.layer(t, inputs, i, x);
      };
      tape.next_layer(layer, m.x);
    });
  }
  for_each(kEnd, together, on_micro_batch, [&](Running& m, Tape& tape) {
    tape.begin_part();
    model.end(tape, m.inputs, m.x);
  });
  while (together[0].tape->has_stage()) {
    for_each(kEnd, together, on_micro_batch, [](Running&, Tape& tape) {
      tape.begin_part();
      tape.run_stage();
    });
  }
}

void MicroBatches::run_backward(Together together, OnMicroBatch& on_micro_batch) {
  const size_t num_parts = together[0].tape->num_parts();
  for (Running& m : together) {
    EBB_CHECK(!m.tape->has_stage(), "all micro-batches must leave the same number of stages");
    m.tape->begin_backward();
  }
  for (size_t i = 0; i < num_parts; ++i) {
    for_each(i + 1 == num_parts ? kBegin : kEnd, together, on_micro_batch,
             [](Running&, Tape& tape) { tape.backward_of_part(); });
  }
  for (Running& m : together) m.tape->end_micro_batch();
}

void MicroBatches::run(const Model& model, const MicroBatchesOptions& run,
                       OnMicroBatch on_micro_batch) {
  const auto most = static_cast<uint32_t>(running_.size());
  for (uint32_t first = 0; first < run.count; first += most) {
    const Together together = std::span(running_).first(std::min(most, run.count - first));
    begin(run, first, together);
    run_forward(model, together, on_micro_batch);
    run_backward(together, on_micro_batch);
  }
}

}  // namespace ebb
