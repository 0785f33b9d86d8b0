#include "device/backends.h"
#include "system/thread_team.h"
#include "tests/kernels/harness.h"

namespace ebb::test {
namespace {

/// Runs each call when it is submitted, with a workspace of exactly the requested size.
class InlineStream final : public Stream {
 public:
  explicit InlineStream(Workspace* workspace) : workspace_(workspace) {}
  void record(Event&) override {}
  void wait(const Event&) override {}
  void copy(void*, const void*, size_t, CopyKind) override {}
  void submit(const Cost& cost, HostFunction function) override {
    Guarded scratch(cost.workspace_bytes);
    *workspace_ = {scratch.data(), scratch.bytes()};
    function();
    *workspace_ = {};
  }
  void synchronize() override {}
  StreamStats stats() const override { return {}; }

 private:
  Workspace* workspace_;
};

}  // namespace

struct Harness::Parts {
  Parts(int num_threads, Arithmetic arithmetic)
      : team(num_threads),
        stream(&workspace),
        kernels(create_host_kernels(team, workspace, arithmetic)) {}

  Workspace workspace;
  ThreadTeam team;
  InlineStream stream;
  std::unique_ptr<Kernels> kernels;
};

Harness::Harness(int num_threads, Arithmetic arithmetic)
    : parts_(std::make_unique<Parts>(num_threads, arithmetic)) {
  stream.parts_ = parts_.get();
  kernels.parts_ = parts_.get();
}
Harness::~Harness() = default;
Harness::CurrentStream::operator Stream&() const { return parts_->stream; }
Harness::Call::~Call() noexcept(false) {}
Kernels* Harness::Call::operator->() const { return parts_->kernels.get(); }
Kernels& Harness::CurrentKernels::operator*() const { return *parts_->kernels; }

bool Harness::can_compute(Arithmetic arithmetic) {
  return arithmetic == Arithmetic::Fp32 || this_processor().has_bf16_dot;
}

bool Harness::has_product_library() { return false; }

SharedMemory::SharedMemory(size_t bytes) : data_(new std::byte[bytes]), bytes_(bytes) {}
SharedMemory::SharedMemory(SharedMemory&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), bytes_(other.bytes_) {}
SharedMemory::~SharedMemory() { delete[] data_; }

}  // namespace ebb::test
