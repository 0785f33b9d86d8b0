#include <array>
#include <string>

#include "cuda/kernels/cudnn_description.h"
#include "cuda/kernels/cudnn_graph.h"
#include "device/errors.h"

namespace ebb {
namespace {

/// The configurations of the library's ranking that it supports, best first.
std::vector<CudnnDescriptor> ranking(const CudnnLibrary& library, const CudnnTarget& target,
                                     cudnnBackendDescriptor_t graph) {
  CudnnDescription request(library, CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR);
  request.set(CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, graph);
  request.set(CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_HEUR_MODE_A);
  if (target.handle == nullptr) request.set(CUDNN_ATTR_ENGINEHEUR_DEVICEPROP, target.properties);
  const CudnnDescriptor answer = request.finish();
  const auto ask = [&](int64_t room, void* configurations) {
    int64_t count = 0;
    check_cudnn(library,
                library.GetAttribute(answer.get(), CUDNN_ATTR_ENGINEHEUR_RESULTS,
                                     CUDNN_TYPE_BACKEND_DESCRIPTOR, room, &count, configurations),
                "asking for attention's kernels");
    return static_cast<size_t>(count);
  };
  std::vector<CudnnDescriptor> configurations;
  std::vector<cudnnBackendDescriptor_t> views;
  for (size_t i = ask(0, nullptr); i > 0; --i) {
    configurations.push_back(create_descriptor(library, CUDNN_BACKEND_ENGINECFG_DESCRIPTOR));
    views.push_back(configurations.back().get());
  }
  const size_t count = views.empty() ? 0 : ask(static_cast<int64_t>(views.size()), views.data());
  configurations.erase(configurations.begin() + static_cast<ptrdiff_t>(count),
                       configurations.end());
  return configurations;
}

CudnnPlan make_plan(const CudnnLibrary& library, const CudnnTarget& target,
                    cudnnBackendDescriptor_t configuration) {
  CudnnDescription description(library, CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR);
  description.set(CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, configuration);
  if (target.handle != nullptr) {
    description.set(CUDNN_ATTR_EXECUTION_PLAN_HANDLE, target.handle);
  } else {
    description.set(CUDNN_ATTR_EXECUTION_PLAN_DEVICEPROP, target.properties);
  }
  CudnnPlan made{description.finish()};
  int64_t count = 0;
  check_cudnn(library,
              library.GetAttribute(made.plan.get(), CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE,
                                   CUDNN_TYPE_INT64, 1, &count, &made.workspace_bytes),
              "asking for a plan's workspace");
  return made;
}

}  // namespace

CudnnAttention forward_of(const AttentionOperands& f) {
  return {.dtype = f.dtype,
          .batch = f.batch,
          .num_tokens = f.num_tokens,
          .num_heads = f.num_heads,
          .num_kv_heads = f.num_kv_heads,
          .head_size = f.head_size,
          .causal = f.causal,
          .has_window = f.causal && f.window > 0,
          .qkv_columns = f.qkv_columns(),
          .out_columns = f.num_heads * f.head_size};
}

CudnnAttention backward_of(const AttentionOperands& f, const AttentionPart& part) {
  CudnnAttention said = forward_of(f);
  said.backward = true;
  said.batch = part.num_rows;
  said.num_kv_heads = part.num_kv_heads;
  said.num_heads = part.num_kv_heads * f.group_size();
  return said;
}

CudnnDescriptor create_descriptor(const CudnnLibrary& library, cudnnBackendDescriptorType_t type) {
  cudnnBackendDescriptor_t descriptor = nullptr;
  check_cudnn(library, library.CreateDescriptor(type, &descriptor), "making a descriptor");
  return {descriptor, CudnnDestroy{&library}};
}

std::optional<CudnnPlan> plan_attention(const CudnnLibrary& library, const CudnnTarget& target,
                                        const CudnnAttention& attention,
                                        int64_t most_workspace_bytes) try {
  const CudnnDescriptor operations = describe_attention(library, target, attention);
  for (const CudnnDescriptor& configuration : ranking(library, target, operations.get())) {
    try {
      CudnnPlan made = make_plan(library, target, configuration.get());
      if (made.workspace_bytes <= most_workspace_bytes) return made;
    } catch (const CudnnUnsupported&) {
      // Not supported: the loop tries the next one.
    }
  }
  return std::nullopt;
} catch (const CudnnUnsupported&) {
  return std::nullopt;
}

void check_cudnn(const CudnnLibrary& library, cudnnStatus_t status, const char* what) {
  if (status == CUDNN_STATUS_SUCCESS) return;
  std::array<char, 256> reason = {};
  library.GetLastErrorString(reason.data(), reason.size());
  throw DeviceError(std::string("cuDNN: ") + what + ": " + library.GetErrorString(status) + " (" +
                    reason.data() + ")");
}

}  // namespace ebb
