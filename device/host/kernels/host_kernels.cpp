#include "device/backends.h"
#include "device/host/kernels/host_launch.h"

namespace ebb {
namespace {

class HostKernels final : public Kernels {
 public:
  explicit HostKernels(const HostLaunch& host) : host_(host) {}

  LogitsShape logits_shape() const override { return {}; }
  void submit(Stream& stream, const AnyKernel& kernel) override {
    std::visit([&](const auto& k) { submit_one(stream, k); }, kernel);
  }

 private:
  template <class Kernel>
  void submit_one(Stream& stream, const Kernel& kernel) {
    if constexpr (requires { kernel.split(); }) {
      const auto [first, second] = kernel.split();
      submit_one(stream, first);
      submit_one(stream, second);
    } else {
      stream.submit(cost_on(host_, kernel), [this, kernel] { kernel.run(host_); });
    }
  }

  const HostLaunch host_;
};

}  // namespace

std::unique_ptr<Kernels> create_host_kernels(ThreadTeam& team, const Workspace& workspace,
                                             Arithmetic arithmetic) {
  return std::make_unique<HostKernels>(HostLaunch{team, workspace, arithmetic});
}

}  // namespace ebb
