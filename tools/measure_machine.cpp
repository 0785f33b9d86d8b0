// Measures kernels, copies and the optimizer on buffers larger than the caches, each for about a
// tenth of a second, and products on a GPU for half a second.
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <functional>
#include <limits>
#include <vector>

#include "cpu_adam/adamw.h"
#include "device/kernels.h"
#include "device/planes.h"
#include "device/sim/sim_device.h"
#include "system/clock.h"
#include "system/cores.h"
#include "system/other_load.h"
#include "system/thread_team.h"
#include "tools/machine_rates.h"

namespace ebb {
namespace {

constexpr double kSample_s = 0.1;
// A GPU lowers its clock after some tenths of a second of products.
constexpr double kSustained_s = 0.5;
constexpr double kRound_s = 0.008;
// A call of this length is a sample by itself, so that a slow machine is not measured for minutes.
constexpr double kLong_s = 0.5;
// Work that takes less time is measured at a larger size, up to kLargestScale times the smallest.
constexpr double kLongEnough_s = 0.002;
constexpr int64_t kLargestScale = 16;
constexpr double kNever = std::numeric_limits<double>::infinity();
constexpr size_t kCopyBytes = size_t{24} << 20;

using Submit = std::function<void(Kernels&, Stream&)>;

enum class Signs : uint8_t { Both, Positive };

/// Numbers from 0.008 to 2 (fp16: 1 to 2) with random digits: neither zeros nor denormals. On
/// numbers that are alike a GPU takes less power and is faster than in training.
void fill_pattern(std::byte* data, size_t bytes, Signs signs) {
  uint16_t words[4096];
  uint32_t state = 1;
  for (uint16_t& word : words) {
    state = state * 1664525 + 1013904223;
    const uint32_t sign = signs == Signs::Both ? state >> 31 : 0;
    const uint32_t rest = (state >> 16) % 0x400;
    word = static_cast<uint16_t>(sign << 15 | (0x3c00 + rest));
  }
  for (size_t at = 0; at < bytes; at += sizeof(words)) {
    std::memcpy(data + at, words, std::min(sizeof(words), bytes - at));
  }
}

double quantile(std::vector<double> values, double share) {
  std::sort(values.begin(), values.end());
  return values[static_cast<size_t>(share * static_cast<double>(values.size() - 1))];
}

class Measurement {
 public:
  Measurement(const DeviceOptions& options, DType weight_type, DType gradient_type)
      : device_(create_device(options)),
        weight_type_(weight_type),
        gradient_type_(gradient_type),
        pinned_(device_->allocate(MemoryKind::Pinned, kCopyBytes, "measurement")),
        copied_(device_->allocate(MemoryKind::Device, kCopyBytes, "measurement")),
        begin_(device_->create_event()),
        end_(device_->create_event()),
        compute_(device_->create_stream(StreamKind::Compute)),
        load_(device_->create_stream(StreamKind::Load)),
        store_(device_->create_stream(StreamKind::Store)) {
    fill_pattern(pinned_.data(), kCopyBytes, Signs::Both);
  }

  Machine run() {
    Machine machine;
    const Rate narrow = on_host() ? Rate{} : matrix_products(true);
    const Rate products = matrix_products(false), vectors = run_vectors();
    const auto [attention, attention_backward] = run_attention();
    const Rate sum = run_add();
    machine.device_bytes_per_s = sum.cost.bytes / sum.seconds;
    machine.flops_per_s = flops_rate(products, machine.device_bytes_per_s);
    if (!on_host()) machine.narrow_flops_per_s = flops_rate(narrow, machine.device_bytes_per_s);
    machine.attention_flops_per_s = flops_rate(attention, machine.device_bytes_per_s);
    machine.attention_backward_flops_per_s =
        flops_rate(attention_backward, machine.device_bytes_per_s);
    machine.vector_flops_per_s = flops_rate(vectors, machine.device_bytes_per_s);
    machine.kernel_s = small_kernel_seconds();
    machine.load_bytes_per_s = copy_rate(CopyKind::Load);
    machine.store_bytes_per_s = copy_rate(CopyKind::Store);
    machine.update_bytes_per_s = update_rate();
    machine.shared_cores = on_host();
    if (machine.shared_cores) machine.copy_bytes_per_s = copy_rate_on_cores();
    return machine;
  }

 private:
  struct Rate {
    Cost cost = {};
    double seconds = 0;
  };

  double flops_rate(const Rate& rate, double bytes_per_s) const {
    const double bytes = on_host() ? rate.cost.bytes : 0;
    return rate_of_arithmetic(rate.cost.flops, rate.seconds, bytes, bytes_per_s);
  }

  Tensor tensor(DType type, Shape shape) {
    const size_t bytes = static_cast<size_t>(shape.num_elements()) * size_of(type);
    buffers_.push_back(device_->allocate(MemoryKind::Device, bytes, "measurement"));
    for (size_t at = 0; at < bytes; at += kCopyBytes) {
      load_->copy(buffers_.back().data() + at, pinned_.data(), std::min(kCopyBytes, bytes - at),
                  CopyKind::Load);
    }
    load_->synchronize();
    return {buffers_.back().data(), type, shape};
  }

  /// The cost of one call, as the simulator counts it.
  Cost cost_of(const Submit& submit) const {
    SimDevice sim({.profile = device_->info().profile});
    const auto stream = sim.create_stream(StreamKind::Compute);
    submit(sim.kernels(), *stream);
    return sim.take();
  }

  struct Times {
    double wall_s = 0;       ///< between the events before and after the work
    double processor_s = 0;  ///< of all threads of this process
  };
  Times times_of(Stream& stream, const std::function<void()>& submit) {
    const double processor_s = process_cpu_s();
    stream.record(*begin_);
    submit();
    stream.record(*end_);
    stream.synchronize();
    return {end_->time_s() - begin_->time_s(), process_cpu_s() - processor_s};
  }

  /// The time of one call, measured in rounds long enough for the clock. On the host the lower
  /// quartile counts, because other processes can only make a round slower. If most rounds were
  /// disturbed, the processor time divided by `num_threads` counts instead. On a GPU the median of
  /// the second half counts: its clock is high at first.
  double typical_seconds(Stream& stream, int num_threads, const std::function<void()>& submit,
                         double sample_s = kSample_s) {
    constexpr double kDisturbed = 1.15;
    times_of(stream, submit);  // touches the memory first
    std::vector<double> wall, processor;
    const auto add_round = [&](int calls) {
      const Times round = times_of(stream, [&] {
        for (int i = 0; i < calls; ++i) submit();
      });
      wall.push_back(round.wall_s / calls);
      processor.push_back(round.processor_s / calls);
      return round.wall_s;
    };
    const double once_s = add_round(1);
    if (once_s < kLong_s) {
      wall.clear();
      processor.clear();
      const int calls = std::max(1, static_cast<int>(kRound_s / std::max(once_s, 1e-6)));
      for (double spent_s = 0; spent_s < sample_s || wall.size() < 4;) spent_s += add_round(calls);
    }
    if (!on_host()) {
      wall.erase(wall.begin(), wall.begin() + std::ssize(wall) / 2);
      return quantile(wall, 0.5);
    }
    const double wall_s = quantile(wall, 0.25);
    const double on_cores_s = quantile(processor, 0.25) / num_threads;
    return wall_s > kDisturbed * on_cores_s ? on_cores_s : wall_s;
  }

  bool on_host() const { return device_->info().profile.kind == DeviceKind::Host; }
  int num_threads() const { return device_->info().profile.num_threads; }

  Rate rate_of(const Submit& submit, double sample_s = kSample_s) {
    const Cost cost = cost_of(submit);
    device_->reserve_workspace(cost.workspace_bytes);
    const double seconds = typical_seconds(
        *compute_, num_threads(), [&] { submit(device_->kernels(), *compute_); }, sample_s);
    return {cost, seconds};
  }

  /// Returns measure(scale) for the smallest scale 1, 2, 4, ... with which it takes long enough.
  template <class Measure>
  static auto large_enough(const Measure& measure) {
    for (int64_t scale = 1;; scale *= 2) {
      const auto rates = measure(scale);
      if (rates.back().seconds > kLongEnough_s || scale == kLargestScale) return rates;
    }
  }

  /// The three products of a linear layer, large enough to keep the device busy. `is_narrow`: with
  /// the channels of GPT-2. The outputs are not inputs, so the numbers stay the same.
  Rate matrix_products(bool is_narrow) {
    const auto measure = [&](int64_t scale) {
      buffers_.clear();
      const int64_t wider = is_narrow ? 1 : scale;
      const int64_t rows = 512 * scale, in = 768 * wider, out = 3072 * wider;
      const Tensor x = tensor(weight_type_, {rows, in}), y = tensor(weight_type_, {rows, out});
      const Tensor dx = tensor(weight_type_, x.shape), y_out = tensor(weight_type_, y.shape);
      const Tensor w = tensor(weight_type_, {out, in}), dw = tensor(DType::F32, {out, in});
      products_ = [=](Kernels& kernels, Stream& stream) {
        kernels.submit(stream, LinearForward{y_out, x, w, {}});
        kernels.submit(stream, LinearBackwardInput{dx, y, w, Write::Store});
        kernels.submit(stream, LinearBackwardWeight{dw, {}, y, x, Write::Store});
      };
      return std::array{rate_of(products_, on_host() ? kSample_s : kSustained_s)};
    };
    const Rate rate = large_enough(measure)[0];
    products_s_ = rate.seconds;
    return rate;
  }

  /// Forward and backward.
  std::array<Rate, 2> run_attention() {
    constexpr int64_t kHeads = 12, kChannels = 768;
    return large_enough([&](int64_t scale) {
      const int64_t batch = 4 * scale, length = 512 * std::min<int64_t>(scale, 4);
      const Tensor qkv = tensor(weight_type_, {batch, length, 3 * kChannels});
      const Tensor dqkv = tensor(weight_type_, qkv.shape);
      const Tensor out = tensor(weight_type_, {batch, length, kChannels});
      const Tensor sums = tensor(DType::F32, {batch, kHeads, length});
      const AttentionShape shape{.num_heads = kHeads};
      const Rate forward = rate_of([=](Kernels& kernels, Stream& stream) {
        kernels.submit(stream, AttentionForward{out, sums, qkv, shape});
      });
      const Rate backward = rate_of([=](Kernels& kernels, Stream& stream) {
        kernels.submit(stream, AttentionBackward{dqkv, out, qkv, out, sums, shape});
      });
      return std::array{forward, backward};
    });
  }

  Rate run_vectors() {
    constexpr int64_t kRows = 1024, kChannels = 768;
    return large_enough(
        [&](int64_t scale) { return std::array{run_vectors(kRows * scale, kChannels)}; })[0];
  }
  Rate run_vectors(int64_t rows, int64_t channels) {
    const Tensor x = tensor(weight_type_, {rows, channels}), y = tensor(weight_type_, x.shape);
    const Tensor w = tensor(weight_type_, {channels});
    const Tensor mean = tensor(DType::F32, {rows}), rstd = tensor(DType::F32, {rows});
    const Tensor dw = tensor(DType::F32, {channels}), db = tensor(DType::F32, {channels});
    const Tensor a = tensor(weight_type_, {rows, 4 * channels}), b = tensor(weight_type_, a.shape);
    return rate_of([=](Kernels& kernels, Stream& stream) {
      kernels.submit(stream, LayerNormForward{y, mean, rstd, x, w, w, 1e-5f});
      kernels.submit(stream,
                     LayerNormBackward{y, Write::Store, dw, db, Write::Store, y, x, w, mean, rstd});
      kernels.submit(stream, ActivationForward{b, a, Activation::GeluTanh});
      kernels.submit(stream, ActivationBackward{b, b, a, Activation::GeluTanh, Write::Store});
    });
  }

  /// The time of a kernel with very little work, but with enough rows for several threads.
  double small_kernel_seconds() {
    constexpr int64_t kRows = 128, kChannels = 64;
    const Tensor x = tensor(weight_type_, {kRows, kChannels}), y = tensor(weight_type_, x.shape);
    const Tensor w = tensor(weight_type_, {kChannels});
    const Tensor mean = tensor(DType::F32, {kRows}), rstd = tensor(DType::F32, {kRows});
    const auto normalise = [=](Kernels& kernels, Stream& stream) {
      kernels.submit(stream, LayerNormForward{y, mean, rstd, x, w, w, 1e-5f});
    };
    return rate_of(normalise).seconds;
  }

  Rate run_add() {
    const auto elements = static_cast<int64_t>(kCopyBytes / size_of(weight_type_));
    const Tensor a = tensor(weight_type_, {elements}), b = tensor(weight_type_, {elements});
    const Tensor y{copied_.data(), weight_type_, {elements}};
    return rate_of([=](Kernels& kernels, Stream& stream) { kernels.submit(stream, Add{y, a, b}); });
  }

  void copy(CopyKind kind) {
    if (kind == CopyKind::Load) {
      load_->copy(copied_.data(), pinned_.data(), kCopyBytes, kind);
    } else {
      store_->copy(pinned_.data(), copied_.data(), kCopyBytes, kind);
    }
  }

  double copy_rate(CopyKind kind) {
    Stream& stream = kind == CopyKind::Load ? *load_ : *store_;
    copy_s_ = typical_seconds(stream, 1, [&] { copy(kind); });
    return static_cast<double>(kCopyBytes) / copy_s_;
  }

  /// Computed from the additional processor time of products while copies run concurrently. The
  /// copies also slow the products down. 0 if copies use no cores.
  double copy_rate_on_cores() {
    constexpr int kCopies = 24;
    const int rounds = products_s_ < kLong_s ? 3 : 1;
    const double copies_s = kCopies * copy_s_;
    const int calls = 1 + static_cast<int>(2 * copies_s / products_s_);
    const auto submit = [&] {
      for (int i = 0; i < calls; ++i) products_(device_->kernels(), *compute_);
    };
    double alone_s = kNever, beside_s = kNever;
    for (int round = 0; round < rounds; ++round) {
      alone_s = std::min(alone_s, times_of(*compute_, submit).processor_s);
      const Times beside = times_of(*compute_, [&] {
        for (int i = 0; i < kCopies; ++i) copy(CopyKind::Load);
        submit();
        load_->synchronize();
      });
      beside_s = std::min(beside_s, beside.processor_s);
    }
    const double lost_s = (beside_s - alone_s) / num_threads();
    return lost_s > 0 ? kCopies * static_cast<double>(kCopyBytes) / lost_s : 0;
  }

  /// The rate of the optimizer on several times the size of the largest cache.
  double update_rate() {
    constexpr int64_t kFewest = int64_t{4} << 20, kMost = int64_t{64} << 20;
    const double bytes_each = update_bytes_per_parameter(weight_type_, gradient_type_);
    const auto cached = static_cast<double>(std::max(0L, ::sysconf(_SC_LEVEL3_CACHE_SIZE)));
    const int64_t count = std::clamp(static_cast<int64_t>(4 * cached / bytes_each), kFewest, kMost);
    std::vector<Buffer> memory;
    const auto filled = [&](size_t bytes) {
      memory.push_back(device_->allocate(MemoryKind::Pinned, bytes, "measurement"));
      fill_pattern(memory.back().data(), bytes, Signs::Positive);  // a variance is
      return memory.back().data();
    };
    const auto elements = static_cast<uint64_t>(count);
    Planes planes{.weight_dtype = weight_type_, .gradient_dtype = gradient_type_};
    size_t next = 0;
    for (const PlaneInfo& plane : state_planes(weight_type_)) {
      planes[next++] = filled(plane.bytes(elements));
    }
    planes.gradient = filled(elements * size_of(gradient_type_));
    ThreadTeam team(num_threads());
    move_planes_to_nodes(team, planes, count);
    const auto update = device_->create_stream(StreamKind::Update);
    const double seconds = typical_seconds(*update, num_threads(), [&] {
      update->submit({.name = "adamw"}, [&team, &planes, count] {
        adamw_update(team, planes, count, {.learning_rate = 1e-6, .t = 100}, 1, 1);
      });
    });
    return bytes_each * static_cast<double>(count) / seconds;
  }

  std::unique_ptr<Device> device_;
  const DType weight_type_, gradient_type_;
  Buffer pinned_, copied_;
  std::vector<Buffer> buffers_;
  Submit products_;
  double products_s_ = 0, copy_s_ = 0;
  std::unique_ptr<Event> begin_, end_;
  std::unique_ptr<Stream> compute_, load_,
      store_;  // last: streams finish before their buffers are destroyed
};

}  // namespace

double rate_of_arithmetic(double flops, double seconds, double bytes, double bytes_per_s) {
  return flops / std::max(seconds - bytes / bytes_per_s, seconds / 2);
}

MeasuredRates measure_machine(const DeviceOptions& options, DType weight_type,
                              DType gradient_type) {
  DeviceOptions unbounded = options;
  unbounded.emulate_compute.reset();
  unbounded.memory_bytes = SIZE_MAX;
  // More threads than cores compute no faster, but their measurement takes minutes.
  unbounded.profile.num_threads = std::min(options.profile.num_threads, num_usable_cores());
  unbounded.profile.pinned_bytes = SIZE_MAX;  // this limit belongs to the run, not to the machine
  unbounded.load_bytes_per_s = unbounded.store_bytes_per_s = 0;
  Measurement measurement(unbounded, weight_type, gradient_type);
  const OtherLoad others;
  const Machine machine = measurement.run();
  return {.machine = machine, .other_load = others.share()};
}

}  // namespace ebb
