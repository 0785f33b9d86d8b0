#include "cuda/kernels/cudnn_plan.h"

#include <array>
#include <string>

#include "device/errors.h"

namespace ebb {
namespace {

using Sizes = std::array<int64_t, 4>;

/// The library has no such kernel, or cannot make it: not an error, the next or ours does it. What
/// may be otherwise tomorrow, as memory, is an error: bits must not follow from it.
struct Unsupported {};

bool is_unsupported(cudnnStatus_t status) {
  return (status >= CUDNN_STATUS_NOT_SUPPORTED && status < CUDNN_STATUS_INTERNAL_ERROR) ||
         status == CUDNN_STATUS_INTERNAL_ERROR_COMPILATION_FAILED;
}

template <class T>
constexpr cudnnBackendAttributeType_t type_of() {
  if constexpr (std::is_same_v<T, bool>) return CUDNN_TYPE_BOOLEAN;
  if constexpr (std::is_same_v<T, int64_t>) return CUDNN_TYPE_INT64;
  if constexpr (std::is_same_v<T, cudnnHandle_t>) return CUDNN_TYPE_HANDLE;
  if constexpr (std::is_same_v<T, cudnnDataType_t>) return CUDNN_TYPE_DATA_TYPE;
  if constexpr (std::is_same_v<T, cudnnPointwiseMode_t>) return CUDNN_TYPE_POINTWISE_MODE;
  if constexpr (std::is_same_v<T, cudnnReduceTensorOp_t>) {
    return CUDNN_TYPE_REDUCTION_OPERATOR_TYPE;
  }
  if constexpr (std::is_same_v<T, cudnnBackendHeurMode_t>) return CUDNN_TYPE_HEUR_MODE;
  return CUDNN_TYPE_BACKEND_DESCRIPTOR;
}

/// A descriptor on its way.
class Description {
 public:
  Description(const CudnnLibrary& library, cudnnBackendDescriptorType_t type)
      : library_(library), made_(create_descriptor(library, type)) {}

  template <class T>
  Description& set(cudnnBackendAttributeName_t name, const T* values, size_t count) {
    check(library_.SetAttribute(made_.get(), name, type_of<T>(), static_cast<int64_t>(count),
                                values));
    return *this;
  }
  template <class T>
  Description& set(cudnnBackendAttributeName_t name, const T& value) {
    return set(name, &value, 1);
  }
  Description& set(cudnnBackendAttributeName_t name, const Sizes& sizes) {
    return set(name, sizes.data(), sizes.size());
  }
  CudnnDescriptor finish() {
    check(library_.Finalize(made_.get()));
    return std::move(made_);
  }

 private:
  void check(cudnnStatus_t status) const {
    if (is_unsupported(status)) throw Unsupported();
    check_cudnn(library_, status, "describing attention");
  }

  const CudnnLibrary& library_;
  CudnnDescriptor made_;
};

class Graph {
 public:
  using Tensor = cudnnBackendDescriptor_t;

  Graph(const CudnnLibrary& library, const CudnnAttention& attention)
      : library_(library), a_(attention) {}

  /// The operations of forward attention.
  void attend();
  CudnnDescriptor finish(const CudnnTarget& target) {
    Description graph(library_, CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR);
    graph.set(CUDNN_ATTR_OPERATIONGRAPH_OPS, operations_.data(), operations_.size());
    if (target.handle != nullptr) graph.set(CUDNN_ATTR_OPERATIONGRAPH_HANDLE, target.handle);
    return graph.finish();
  }

 private:
  cudnnDataType_t io() const {
    return a_.dtype == DType::BF16 ? CUDNN_DATA_BFLOAT16 : CUDNN_DATA_HALF;
  }
  Tensor keep(CudnnDescriptor descriptor) {
    return made_.emplace_back(std::move(descriptor)).get();
  }
  Description describe(const Sizes& sizes, const Sizes& strides, cudnnDataType_t type,
                       int64_t name) {
    constexpr int64_t kAlignment = 16;
    Description tensor(library_, CUDNN_BACKEND_TENSOR_DESCRIPTOR);
    tensor.set(CUDNN_ATTR_TENSOR_DIMENSIONS, sizes).set(CUDNN_ATTR_TENSOR_STRIDES, strides);
    tensor.set(CUDNN_ATTR_TENSOR_DATA_TYPE, type).set(CUDNN_ATTR_TENSOR_UNIQUE_ID, name);
    tensor.set(CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, kAlignment);
    return tensor;
  }
  Tensor stored(CudnnTensor name, const Sizes& sizes, const Sizes& strides, cudnnDataType_t type) {
    return keep(describe(sizes, strides, type, static_cast<int64_t>(name)).finish());
  }
  Tensor number(CudnnTensor name) {
    Description tensor =
        describe({1, 1, 1, 1}, {1, 1, 1, 1}, CUDNN_DATA_FLOAT, static_cast<int64_t>(name));
    return keep(tensor.set(CUDNN_ATTR_TENSOR_IS_BY_VALUE, true).finish());
  }
  /// An inner tensor, of a value for each score or for each row of them.
  Tensor inner(cudnnDataType_t type, int64_t columns) {
    const int64_t rows = a_.num_tokens;
    Description tensor =
        describe({a_.batch, a_.num_heads, rows, columns},
                 {a_.num_heads * rows * columns, rows * columns, columns, 1}, type, next_inner_++);
    return keep(tensor.set(CUDNN_ATTR_TENSOR_IS_VIRTUAL, true).finish());
  }
  Tensor scores(cudnnDataType_t type = CUDNN_DATA_FLOAT) { return inner(type, a_.num_tokens); }
  Tensor rows() { return inner(CUDNN_DATA_FLOAT, 1); }

  struct Pointwise {
    cudnnPointwiseMode_t mode;
    Tensor x, b = nullptr, t = nullptr;
    cudnnDataType_t computes_in = CUDNN_DATA_FLOAT;
    std::optional<int64_t> axis = {};
  };
  Tensor pointwise(const Pointwise& p, Tensor y) {
    Description mode(library_, CUDNN_BACKEND_POINTWISE_DESCRIPTOR);
    mode.set(CUDNN_ATTR_POINTWISE_MODE, p.mode);
    mode.set(CUDNN_ATTR_POINTWISE_MATH_PREC, p.computes_in);
    if (p.axis) mode.set(CUDNN_ATTR_POINTWISE_AXIS, *p.axis);
    Description operation(library_, CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR);
    operation.set(CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, keep(mode.finish()));
    operation.set(CUDNN_ATTR_OPERATION_POINTWISE_XDESC, p.x);
    if (p.b != nullptr) operation.set(CUDNN_ATTR_OPERATION_POINTWISE_BDESC, p.b);
    if (p.t != nullptr) operation.set(CUDNN_ATTR_OPERATION_POINTWISE_TDESC, p.t);
    return submit(operation.set(CUDNN_ATTR_OPERATION_POINTWISE_YDESC, y), y);
  }
  Tensor reduce(cudnnReduceTensorOp_t how, Tensor x, Tensor y) {
    Description mode(library_, CUDNN_BACKEND_REDUCTION_DESCRIPTOR);
    mode.set(CUDNN_ATTR_REDUCTION_OPERATOR, how);
    mode.set(CUDNN_ATTR_REDUCTION_COMP_TYPE, CUDNN_DATA_FLOAT);
    Description operation(library_, CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR);
    operation.set(CUDNN_ATTR_OPERATION_REDUCTION_DESC, keep(mode.finish()));
    operation.set(CUDNN_ATTR_OPERATION_REDUCTION_XDESC, x);
    return submit(operation.set(CUDNN_ATTR_OPERATION_REDUCTION_YDESC, y), y);
  }
  Tensor multiply(Tensor a, Tensor b, Tensor c) {
    Description mode(library_, CUDNN_BACKEND_MATMUL_DESCRIPTOR);
    mode.set(CUDNN_ATTR_MATMUL_COMP_TYPE, CUDNN_DATA_FLOAT);
    Description operation(library_, CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR);
    operation.set(CUDNN_ATTR_OPERATION_MATMUL_DESC, keep(mode.finish()));
    operation.set(CUDNN_ATTR_OPERATION_MATMUL_ADESC, a);
    operation.set(CUDNN_ATTR_OPERATION_MATMUL_BDESC, b);
    return submit(operation.set(CUDNN_ATTR_OPERATION_MATMUL_CDESC, c), c);
  }
  Tensor submit(Description& operation, Tensor result) {
    operations_.push_back(keep(operation.finish()));
    return result;
  }

  /// Each score's own query (axis 2) or key (axis 3).
  Tensor index(Tensor s, int64_t axis) {
    return pointwise({.mode = CUDNN_POINTWISE_GEN_INDEX, .x = s, .axis = axis},
                     scores(CUDNN_DATA_INT32));
  }
  /// Scores where x `compares` to b, and `nothing` elsewhere.
  Tensor masked(Tensor s, cudnnPointwiseMode_t compares, Tensor x, Tensor b, Tensor nothing) {
    const Tensor seen =
        pointwise({.mode = compares, .x = x, .b = b, .computes_in = CUDNN_DATA_BOOLEAN},
                  scores(CUDNN_DATA_BOOLEAN));
    return pointwise({.mode = CUDNN_POINTWISE_BINARY_SELECT, .x = s, .b = nothing, .t = seen},
                     scores());
  }
  Tensor masked(Tensor s);

  const CudnnLibrary& library_;
  const CudnnAttention& a_;
  std::vector<CudnnDescriptor> made_;
  std::vector<cudnnBackendDescriptor_t> operations_;
  int64_t next_inner_ = 100;  // behind the names of CudnnTensor
};

Graph::Tensor Graph::masked(Tensor s) {
  if (!a_.causal) return s;
  const Tensor nothing = number(CudnnTensor::Nothing);
  const Tensor query = index(s, 2);
  s = masked(s, CUDNN_POINTWISE_CMP_GE, query, index(s, 3), nothing);
  if (!a_.has_window) return s;
  // The library takes windows as floats.
  const Tensor query_again = index(s, 2);
  const Tensor end = pointwise(
      {.mode = CUDNN_POINTWISE_ADD, .x = index(s, 3), .b = number(CudnnTensor::Window), .axis = 3},
      scores());
  return masked(s, CUDNN_POINTWISE_CMP_GT, end, query_again, nothing);
}

void Graph::attend() {
  const int64_t b = a_.batch, t = a_.num_tokens, h = a_.num_heads, d = a_.head_size;
  const int64_t row = (h + 2 * a_.num_kv_heads) * d;
  const Sizes heads = {b, a_.num_kv_heads, t, d}, strides = {t * row, d, row, 1};
  const Tensor queries = stored(CudnnTensor::Queries, {b, h, t, d}, strides, io());
  // Keys are the right factor: (B, NKV, D, T).
  const Tensor keys = stored(CudnnTensor::Keys, {heads[0], heads[1], heads[3], heads[2]},
                             {strides[0], strides[1], strides[3], strides[2]}, io());
  const Tensor values = stored(CudnnTensor::Values, heads, strides, io());
  const Tensor out = stored(CudnnTensor::Out, {b, h, t, d}, {t * h * d, d, h * d, 1}, io());
  const Tensor log_sum_exp =
      stored(CudnnTensor::LogSumExp, {b, h, t, 1}, {h * t, t, 1, 1}, CUDNN_DATA_FLOAT);

  const Tensor products = multiply(queries, keys, scores());
  const Tensor s = masked(pointwise(
      {.mode = CUDNN_POINTWISE_MUL, .x = products, .b = number(CudnnTensor::Scale)}, scores()));
  const Tensor highest = reduce(CUDNN_REDUCE_TENSOR_MAX, s, rows());
  const Tensor below = pointwise({.mode = CUDNN_POINTWISE_SUB, .x = s, .b = highest}, scores());
  const Tensor weights = pointwise({.mode = CUDNN_POINTWISE_EXP, .x = below}, scores());
  const Tensor total = reduce(CUDNN_REDUCE_TENSOR_ADD, weights, rows());
  const Tensor log = pointwise({.mode = CUDNN_POINTWISE_LOG, .x = total}, rows());
  pointwise({.mode = CUDNN_POINTWISE_ADD, .x = highest, .b = log}, log_sum_exp);
  const Tensor shares =
      pointwise({.mode = CUDNN_POINTWISE_DIV, .x = weights, .b = total}, scores(io()));
  multiply(shares, values, out);
}

/// The library's ranking: those that it supports.
std::vector<CudnnDescriptor> ranking(const CudnnLibrary& library, const CudnnTarget& target,
                                     cudnnBackendDescriptor_t graph) {
  Description request(library, CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR);
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
  Description description(library, CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR);
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

CudnnDescriptor create_descriptor(const CudnnLibrary& library, cudnnBackendDescriptorType_t type) {
  cudnnBackendDescriptor_t descriptor = nullptr;
  check_cudnn(library, library.CreateDescriptor(type, &descriptor), "making a descriptor");
  return {descriptor, CudnnDestroy{&library}};
}

std::optional<CudnnPlan> plan_attention(const CudnnLibrary& library, const CudnnTarget& target,
                                        const CudnnAttention& attention,
                                        int64_t most_workspace_bytes) try {
  Graph graph(library, attention);
  graph.attend();
  const CudnnDescriptor operations = graph.finish(target);
  for (const CudnnDescriptor& configuration : ranking(library, target, operations.get())) {
    try {
      CudnnPlan made = make_plan(library, target, configuration.get());
      if (made.workspace_bytes <= most_workspace_bytes) return made;
    } catch (const Unsupported&) {
      // The next one, then.
    }
  }
  return std::nullopt;
} catch (const Unsupported&) {
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
