// The kernel tests on a GPU, or on the emulated GPU if the program links it. Arrays are in pinned
// memory, which host and device both read and write. Without a GPU every test is skipped; with
// EBB_REQUIRE_CUDA=1 in the environment the program fails instead.
#include <cstdlib>
#include <exception>
#include <map>
#include <mutex>
#include <string_view>

#include "device/device.h"
#include "tests/kernels/harness.h"

namespace ebb::test {
namespace {

/// One device for all tests of the program.
class CudaEnvironment final : public testing::Environment {
 public:
  void SetUp() override {
    const CudaProbe probe = probe_cuda();
    if (probe.devices.empty()) {
      const char* required = std::getenv("EBB_REQUIRE_CUDA");
      if (required != nullptr && std::string_view(required) == "1") {
        FAIL() << "EBB_REQUIRE_CUDA=1, but: " << probe.note;
      }
      GTEST_SKIP() << probe.note;
    }
    device = create_device(
        {.profile = {
             .kind = DeviceKind::Cuda, .num_threads = 1, .attention = AttentionKernels::Ebb}});
    device->reserve_workspace(kWorkspaceBytes);
  }
  void TearDown() override { device.reset(); }

  std::unique_ptr<Device> device;

 private:
  static constexpr size_t kWorkspaceBytes = size_t{40} << 20;
};

CudaEnvironment& environment() {
  static auto* const one =
      static_cast<CudaEnvironment*>(testing::AddGlobalTestEnvironment(new CudaEnvironment));
  return *one;
}
[[maybe_unused]] const CudaEnvironment& registered_before_main = environment();

/// Waits for the calls that may use an array before the array is freed. Temporary arguments of a
/// call are destroyed before the Harness::Call that waits for it.
void finish_calls();

/// Owns the memory of all SharedMemory objects.
class Buffers {
 public:
  std::byte* allocate(size_t bytes) {
    Buffer buffer = environment().device->allocate(MemoryKind::Pinned, bytes, "tests");
    std::byte* data = buffer.data();
    std::lock_guard lock(mutex_);
    buffers_.emplace(data, std::move(buffer));
    return data;
  }
  void free(std::byte* data) {
    finish_calls();
    std::lock_guard lock(mutex_);
    buffers_.erase(data);
  }

 private:
  std::mutex mutex_;
  std::map<std::byte*, Buffer> buffers_;
};
Buffers& buffers() {
  static Buffers all;
  return all;
}

}  // namespace

struct Harness::Parts {
  Parts() {
    begin();
    all().push_back(this);
  }
  ~Parts() { std::erase(all(), this); }

  static std::vector<Parts*>& all() {
    static std::vector<Parts*> parts;
    return parts;
  }
  void begin() { stream = environment().device->create_stream(StreamKind::Compute); }
  void finish() noexcept {
    try {
      stream->synchronize();
    } catch (...) {
      error = std::current_exception();
      begin();  // because a stream keeps its first error
    }
  }

  std::unique_ptr<Stream> stream;
  std::exception_ptr error;
};

namespace {

void finish_calls() {
  for (Harness::Parts* parts : Harness::Parts::all()) parts->finish();
}

}  // namespace

Harness::Harness(int, Arithmetic) : parts_(std::make_unique<Parts>()) {
  stream.parts_ = parts_.get();
  kernels.parts_ = parts_.get();
}
Harness::~Harness() = default;
Harness::CurrentStream::operator Stream&() const { return *parts_->stream; }

Harness::Call::~Call() noexcept(false) {
  parts_->finish();
  if (parts_->error == nullptr) return;
  std::rethrow_exception(std::exchange(parts_->error, nullptr));
}
Kernels* Harness::Call::operator->() const { return &environment().device->kernels(); }
Kernels& Harness::CurrentKernels::operator*() const { return environment().device->kernels(); }

bool Harness::can_compute(Arithmetic arithmetic) { return arithmetic == Arithmetic::Fp32; }

bool Harness::has_product_library() {
  return !environment().device->info().name.starts_with("emulated GPU");
}

SharedMemory::SharedMemory(size_t bytes) : data_(buffers().allocate(bytes)), bytes_(bytes) {}
SharedMemory::SharedMemory(SharedMemory&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), bytes_(other.bytes_) {}
SharedMemory::~SharedMemory() {
  if (data_ != nullptr) buffers().free(data_);
}

}  // namespace ebb::test
