// cuDNN's place in the emulation, where a test says that there is one: attention as plain loops, in
// fp64 but for what the library rounds: weights, before they meet the values.
#include <algorithm>
#include <cmath>
#include <vector>

#include "cuda/attention_library.h"
#include "device/errors.h"
#include "tests/cuda_emulation/emulated_device.h"
#include "tests/cuda_emulation/os_threads.h"
#include "tests/cuda_emulation/stream_queue.h"

namespace ebb {
namespace {

template <class T>
class Attention {
 public:
  explicit Attention(const cuda::AttentionLaunch& f) : f_(f) {}

  void attend(int64_t b, int64_t head, int64_t query) const {
    const int64_t d = f_.head_size, key_head = head / (f_.num_heads / f_.num_kv_heads);
    const int64_t last = f_.causal ? query : f_.num_tokens - 1;
    const int64_t first =
        f_.causal && f_.window > 0 ? std::max<int64_t>(0, query - f_.window + 1) : 0;
    const T* q = row(b, query) + head * d;
    std::vector<double> scores;
    for (int64_t key = first; key <= last; ++key) {
      const T* k = row(b, key) + (f_.num_heads + key_head) * d;
      double score = 0;
      for (int64_t i = 0; i < d; ++i) score += double{float{q[i]}} * float{k[i]};
      scores.push_back(score * f_.scale);
    }
    const double highest = *std::ranges::max_element(scores);
    double total = 0;
    std::vector<double> sums(static_cast<size_t>(d), 0.0);
    for (int64_t key = first; key <= last; ++key) {
      const double weight = std::exp(scores[static_cast<size_t>(key - first)] - highest);
      total += weight;
      const T* v = row(b, key) + (f_.num_heads + f_.num_kv_heads + key_head) * d;
      const float rounded{T(static_cast<float>(weight))};
      for (int64_t i = 0; i < d; ++i) sums[static_cast<size_t>(i)] += double{rounded} * float{v[i]};
    }
    T* out = static_cast<T*>(f_.out) + ((b * f_.num_tokens + query) * f_.num_heads + head) * d;
    for (int64_t i = 0; i < d; ++i) {
      out[i] = T(static_cast<float>(sums[static_cast<size_t>(i)] / total));
    }
    f_.log_sum_exp[(b * f_.num_heads + head) * f_.num_tokens + query] =
        static_cast<float>(highest + std::log(total));
  }

 private:
  const T* row(int64_t b, int64_t token) const {
    return static_cast<const T*>(f_.qkv) +
           (b * f_.num_tokens + token) * (f_.num_heads + 2 * f_.num_kv_heads) * f_.head_size;
  }

  const cuda::AttentionLaunch& f_;
};

class PlainAttention final : public AttentionLibrary {
 public:
  bool can_attend(const cuda::AttentionLaunch& f) override {
    return f.dtype != DType::F32 && f.document_starts == nullptr && f.dropout.probability == 0.0f &&
           f.head_size % 8 == 0;
  }
  void forward(cudaStream_t stream, const cuda::AttentionLaunch& f, std::byte* workspace) override {
    EBB_CHECK(can_attend(f), "cuDNN would refuse this attention");
    EBB_CHECK(emulation::is_device_memory(workspace, kAttentionWorkspaceBytes),
              "the workspace of attention is not on the device");
    emulation::enqueue(stream, [f] {
      emulation::deal(f.batch * f.num_heads, [&](int64_t i) {
        for (int64_t query = 0; query < f.num_tokens; ++query) {
          const int64_t b = i / f.num_heads, head = i % f.num_heads;
          with_float_type(f.dtype,
                          [&](auto zero) { Attention<decltype(zero)>(f).attend(b, head, query); });
        }
      });
    });
  }
};

}  // namespace

std::string attention_library_name() { return emulation::settings().attention_library; }

std::unique_ptr<AttentionLibrary> create_attention_library() {
  return std::make_unique<PlainAttention>();
}

}  // namespace ebb
