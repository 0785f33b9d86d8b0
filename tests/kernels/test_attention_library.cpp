// Attention by a library (cuDNN). The library rounds weights and gradients of scores to 16 bits;
// the results differ from fp64 by no more than this rounding. Ebb's own kernels compute the cases
// that the library does not support, or supports without a backward.
#include <cmath>
#include <memory>
#include <optional>

#include "device/device.h"
#include "tests/kernels/reference.h"

namespace ebb::test {
namespace {

constexpr size_t kWorkspaceBytes = size_t{320} << 20;  // more than one part of a backward needs

/// A second device; the device of the harness uses Ebb's own attention.
class Gpu {
 public:
  explicit Gpu(std::optional<AttentionKernels> attention)
      : device_(create_device(
            {.profile = {.kind = DeviceKind::Cuda, .num_threads = 1, .attention = attention}})),
        stream_(device_->create_stream(StreamKind::Compute)) {
    device_->reserve_workspace(kWorkspaceBytes);
  }
  /// A copy in device memory, because a library may not read pinned memory.
  Tensor upload(const Array& array) {
    Tensor tensor = make(array.tensor().dtype, array.tensor().shape);
    stream_->copy(tensor.data, array.tensor().data, tensor.bytes(), CopyKind::Load);
    return tensor;
  }
  Tensor make(DType dtype, Shape shape) {
    Tensor tensor{nullptr, dtype, shape};
    buffers_.push_back(device_->allocate(MemoryKind::Device, tensor.bytes(), "a tensor"));
    tensor.data = buffers_.back().data();
    return tensor;
  }
  void download(const Array& array, const Tensor& tensor) {
    stream_->copy(array.tensor().data, tensor.data, tensor.bytes(), CopyKind::Store);
  }
  void wait() { stream_->synchronize(); }
  void finish() {
    wait();
    buffers_.clear();
  }
  Kernels& kernels() { return device_->kernels(); }
  Stream& stream() { return *stream_; }
  const std::string& name() const { return device_->info().name; }

 private:
  const std::unique_ptr<Device> device_;
  std::vector<Buffer> buffers_;
  const std::unique_ptr<Stream> stream_;
};

struct Results {
  Array out, log_sum_exp, dqkv;
  bool operator==(const Results& other) const {
    return out.raw() == other.out.raw() && log_sum_exp.raw() == other.log_sum_exp.raw() &&
           dqkv.raw() == other.dqkv.raw();
  }
};

struct Inputs {
  const AttentionCase shape;
  const Array starts, qkv, dout;
  const float dropout;

  Inputs(DType dtype, const AttentionCase& s, float dropout_probability = 0)
      : shape(s),
        starts(int_array(s.starts)),
        qkv(random_array(dtype, {s.batch, s.tokens, s.qkv_columns()}, 5, 2.0)),
        dout(random_array(dtype, {s.batch, s.tokens, s.channels()}, 7)),
        dropout(dropout_probability) {}

  Results attend(Gpu& gpu) const { return attend(gpu, gpu); }
  /// Forward on `gpu`; backward on `backward`, with the results of `gpu`.
  Results attend(Gpu& gpu, Gpu& backward) const {
    const DType dtype = qkv.tensor().dtype;
    Results results{Array(dtype, {shape.batch, shape.tokens, shape.channels()}),
                    Array(DType::F32, {shape.batch, shape.heads, shape.tokens}),
                    Array(dtype, {shape.batch, shape.tokens, shape.qkv_columns()})};
    AttentionShape arguments{
        shape.heads, shape.causal, shape.starts.empty() ? Tensor{} : gpu.upload(starts),
        shape.keys,  shape.window, static_cast<float>(shape.scale)};
    arguments.dropout.probability = dropout;
    const Tensor in = gpu.upload(qkv), gradient = gpu.upload(dout);
    const Tensor y = gpu.make(dtype, gradient.shape), d = gpu.make(dtype, in.shape);
    const Tensor statistics = gpu.make(DType::F32, results.log_sum_exp.tensor().shape);
    gpu.kernels().submit(gpu.stream(), AttentionForward{y, statistics, in, arguments});
    gpu.wait();
    backward.kernels().submit(backward.stream(),
                              AttentionBackward{d, gradient, in, y, statistics, arguments});
    backward.wait();
    gpu.download(results.out, y);
    gpu.download(results.log_sum_exp, statistics);
    gpu.download(results.dqkv, d);
    gpu.finish();
    return results;
  }
};

/// False if the emulated library, which is slow, computes attention.
bool is_cudnn() { return probe_cuda().attention_library.starts_with("cuDNN"); }

class AttentionLibraryTest : public testing::TestWithParam<DType> {
 protected:
  void SetUp() override {
    if (probe_cuda().attention_library.empty()) {
      GTEST_SKIP() << "this machine has no library for attention";
    }
    library_ = std::make_unique<Gpu>(AttentionKernels::Cudnn);
    ours_ = std::make_unique<Gpu>(AttentionKernels::Ebb);
  }
  /// The largest relative error of rounding to this type.
  double rounding() const { return GetParam() == DType::BF16 ? 0x1p-8 : 0x1p-11; }

  std::unique_ptr<Gpu> library_, ours_;
};
INSTANTIATE_TEST_SUITE_P(Types, AttentionLibraryTest, testing::Values(DType::BF16, DType::F16),
                         [](const auto& info) { return std::string(name_of(info.param)); });

// B, T, heads, head size, causal, documents, heads of keys, window, scale.
const std::vector<AttentionCase>& cases() {
  static const std::vector<AttentionCase> all = {{1, 1, 1, 8, true, {}},
                                                 {2, 64, 2, 64, true, {}},
                                                 {1, 131, 2, 64, true, {}},
                                                 {2, 131, 2, 32, false, {}},
                                                 {2, 71, 6, 16, true, {}, 2},
                                                 {1, 130, 4, 16, false, {}, 1},
                                                 {2, 150, 2, 16, true, {}, 2, 37},
                                                 {1, 70, 2, 8, true, {}, 1, 1},
                                                 {1, 70, 1, 8, true, {}, 1, 71},
                                                 {1, 40, 2, 128, true, {}},
                                                 {1, 40, 2, 16, false, {}, 1, 0, 0.7},
                                                 // Lengths for which the library has a backward.
                                                 {2, 128, 2, 64, true, {}},
                                                 {1, 256, 4, 16, true, {}, 2, 37},
                                                 {2, 128, 3, 8, false, {}, 1, 0, 0.7}};
  return all;
}

TEST_P(AttentionLibraryTest, IsNearFp64) {
  for (const AttentionCase& shape : cases()) {
    SCOPED_TRACE(testing::Message()
                 << shape.batch << " x " << shape.tokens << ", " << shape.heads << " heads of "
                 << shape.head_size << ", window " << shape.window);
    const Inputs inputs(GetParam(), shape);
    const Results got = inputs.attend(*library_);
    const Attention want = attention(inputs.qkv.values(), shape);
    // The values are in [-2, 2], and each weight is rounded.
    EXPECT_TRUE(
        close(got.out.values(), want.out, Values(want.out.size(), 2.0), rounding(), GetParam()));
    EXPECT_TRUE(close(got.log_sum_exp.values(), want.log_sum_exp,
                      Values(want.log_sum_exp.size(), 10.0), 3e-7, DType::F32));
    // Backward reads `out`, which contains the rounding of the weights and its own. The tolerance
    // is twice that of Ebb's own kernels.
    const Values gradient = attention_gradient(inputs.dout.values(), inputs.qkv.values(), shape);
    const double terms = static_cast<double>(shape.tokens * shape.heads / shape.key_heads());
    EXPECT_TRUE(close(got.dqkv.values(), gradient,
                      Values(gradient.size(), 2.0 + 0.5 * std::sqrt(terms)), rounding(),
                      GetParam()));
    // A single key has weight 1, which needs no rounding.
    const bool is_alone = shape.tokens == 1 || shape.window == 1;
    EXPECT_EQ(got.out.raw() == inputs.attend(*ours_).out.raw(), is_alone)
        << "did the library compute the forward?";
    const Results with_our_backward = inputs.attend(*library_, *ours_);
    EXPECT_EQ(got.dqkv.raw() != with_our_backward.dqkv.raw(), shape.tokens % 128 == 0)
        << "did the library compute the backward?";
  }
}

TEST_P(AttentionLibraryTest, TheComparisonFindsOneKeyTooMany) {
  const AttentionCase shape{1, 90, 2, 8, true, {}, 2, 33};
  const Inputs inputs(GetParam(), shape);
  AttentionCase wrong = shape;
  wrong.window = 34;
  const Values want = attention(inputs.qkv.values(), wrong).out;
  EXPECT_FALSE(close(inputs.attend(*library_).out.values(), want, Values(want.size(), 2.0),
                     rounding(), GetParam()));
}

TEST_P(AttentionLibraryTest, TheComparisonFindsOneKeyTooManyInTheGradient) {
  const AttentionCase shape{1, 128, 2, 8, true, {}, 2, 33};
  const Inputs inputs(GetParam(), shape);
  AttentionCase wrong = shape;
  wrong.window = 34;
  const Values want = attention_gradient(inputs.dout.values(), inputs.qkv.values(), wrong);
  EXPECT_FALSE(close(inputs.attend(*library_).dqkv.values(), want,
                     Values(want.size(), 2.0 + 0.5 * std::sqrt(128.0)), rounding(), GetParam()));
}

TEST_P(AttentionLibraryTest, HasTheSameBitsAgain) {
  for (const AttentionCase& shape : cases()) {
    const Results first = Inputs(GetParam(), shape).attend(*library_);
    EXPECT_TRUE(Inputs(GetParam(), shape).attend(*library_) == first) << shape.tokens;
  }
}

/// The texts are so long that the library splits them into parts and adds the results.
TEST_P(AttentionLibraryTest, HasTheSameBitsAgainForLongTexts) {
  const std::vector<int64_t> lengths =
      is_cudnn() ? std::vector<int64_t>{4096, 1100} : std::vector<int64_t>{256};
  for (const int64_t length : lengths) {
    const Inputs inputs(GetParam(), {1, length, 1, 8, true, {}});
    const Results first = inputs.attend(*library_);
    for (int i = 0; i < 3; ++i) EXPECT_TRUE(inputs.attend(*library_) == first) << length;
  }
}

/// A backward in several parts, of rows and of heads, is near the backward of Ebb's own kernels.
TEST_P(AttentionLibraryTest, ABackwardInPartsIsNearOurs) {
  if (!is_cudnn()) {
    GTEST_SKIP() << "too long for the emulated library; AttentionParts.HaveTheBitsOfTheWhole uses "
                    "small cases";
  }
  for (const AttentionCase& shape :
       {AttentionCase{12, 1024, 12, 64, true, {}}, {1, 4096, 16, 128, true, {}, 4, 1000}}) {
    const Inputs inputs(GetParam(), shape);
    const Results got = inputs.attend(*library_), ours = inputs.attend(*library_, *ours_);
    EXPECT_TRUE(inputs.attend(*library_) == got);
    const Values want = ours.dqkv.values();
    const double terms = static_cast<double>(shape.tokens * shape.heads / shape.key_heads());
    EXPECT_TRUE(close(got.dqkv.values(), want, Values(want.size(), 2.0 + 0.5 * std::sqrt(terms)),
                      rounding(), GetParam()));
  }
}

TEST_P(AttentionLibraryTest, OnlySupportedCasesUseTheLibrary) {
  const AttentionCase plain{1, 70, 2, 16, true, {}};
  const Inputs supported(GetParam(), plain);
  EXPECT_FALSE(supported.attend(*library_) == supported.attend(*ours_))
      << "Ebb's kernels do not round the weights";

  const auto expect_ours = [&](DType dtype, const AttentionCase& shape, float dropout = 0) {
    const Inputs inputs(dtype, shape, dropout);
    EXPECT_TRUE(inputs.attend(*library_) == inputs.attend(*ours_));
  };
  expect_ours(GetParam(), plain, 0.1f);
  expect_ours(DType::F32, plain);
  AttentionCase documents = plain, narrow = plain;
  documents.starts = std::vector<int32_t>(70, 0);
  narrow.head_size = 12;
  expect_ours(GetParam(), documents);
  expect_ours(GetParam(), narrow);
}

TEST_P(AttentionLibraryTest, IsTheDefault) {
  const std::string by = ", attention by " + probe_cuda().attention_library;
  EXPECT_NE(Gpu(std::nullopt).name().find(by), std::string::npos);
  EXPECT_NE(library_->name().find(by), std::string::npos);
  EXPECT_EQ(ours_->name().find(by), std::string::npos);
}

}  // namespace
}  // namespace ebb::test
