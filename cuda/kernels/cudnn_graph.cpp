#include "cuda/kernels/cudnn_graph.h"

#include <optional>

#include "cuda/kernels/cudnn_description.h"

namespace ebb {
namespace {

using Sizes = std::array<int64_t, 4>;

class Graph {
 public:
  using Tensor = cudnnBackendDescriptor_t;

  Graph(const CudnnLibrary& library, const CudnnAttention& attention)
      : library_(library), a_(attention) {}

  void attend();
  void differentiate();
  CudnnDescriptor finish(const CudnnTarget& target) {
    CudnnDescription graph(library_, CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR);
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
  CudnnDescription describe(const Sizes& sizes, const Sizes& strides, cudnnDataType_t type,
                            int64_t name) {
    constexpr int64_t kAlignment = 16;
    CudnnDescription tensor(library_, CUDNN_BACKEND_TENSOR_DESCRIPTOR);
    tensor.set(CUDNN_ATTR_TENSOR_DIMENSIONS, sizes).set(CUDNN_ATTR_TENSOR_STRIDES, strides);
    tensor.set(CUDNN_ATTR_TENSOR_DATA_TYPE, type).set(CUDNN_ATTR_TENSOR_UNIQUE_ID, name);
    tensor.set(CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, kAlignment);
    return tensor;
  }
  Tensor stored(CudnnTensor name, const Sizes& sizes, const Sizes& strides, cudnnDataType_t type) {
    return keep(describe(sizes, strides, type, static_cast<int64_t>(name)).finish());
  }
  Tensor number(CudnnTensor name) {
    CudnnDescription tensor =
        describe({1, 1, 1, 1}, {1, 1, 1, 1}, CUDNN_DATA_FLOAT, static_cast<int64_t>(name));
    return keep(tensor.set(CUDNN_ATTR_TENSOR_IS_BY_VALUE, true).finish());
  }
  // Tensors in memory. Queries, keys, values and their gradients are (B, heads, T, D), and share
  // the rows of qkv.
  Sizes qkv_strides() const {
    const int64_t row = a_.qkv_columns;
    return {a_.num_tokens * row, a_.head_size, row, 1};
  }
  Tensor heads(CudnnTensor name, int64_t num_heads) {
    return stored(name, {a_.batch, num_heads, a_.num_tokens, a_.head_size}, qkv_strides(), io());
  }
  /// Keys or values as the right factor of a product: (B, NKV, D, T).
  Tensor right_factor(CudnnTensor name) {
    const Sizes strides = qkv_strides();
    return stored(name, {a_.batch, a_.num_kv_heads, a_.head_size, a_.num_tokens},
                  {strides[0], strides[1], strides[3], strides[2]}, io());
  }
  Tensor result(CudnnTensor name) {
    const int64_t row = a_.out_columns;
    return stored(name, {a_.batch, a_.num_heads, a_.num_tokens, a_.head_size},
                  {a_.num_tokens * row, a_.head_size, row, 1}, io());
  }
  Tensor row_sums(CudnnTensor name) {
    const int64_t h = a_.num_heads, t = a_.num_tokens;
    return stored(name, {a_.batch, h, t, 1}, {h * t, t, 1, 1}, CUDNN_DATA_FLOAT);
  }

  // Inner tensors of the graph, which are never stored.
  Tensor unstored(const Sizes& sizes, const Sizes& strides, cudnnDataType_t type) {
    CudnnDescription tensor = describe(sizes, strides, type, next_unstored_++);
    return keep(tensor.set(CUDNN_ATTR_TENSOR_IS_VIRTUAL, true).finish());
  }
  /// (B, NH, T, columns)
  Tensor unstored(cudnnDataType_t type, int64_t columns) {
    const int64_t h = a_.num_heads, t = a_.num_tokens;
    return unstored({a_.batch, h, t, columns}, {h * t * columns, t * columns, columns, 1}, type);
  }
  Tensor scores(cudnnDataType_t type = CUDNN_DATA_FLOAT) { return unstored(type, a_.num_tokens); }
  Tensor rows() { return unstored(CUDNN_DATA_FLOAT, 1); }

  struct Pointwise {
    cudnnPointwiseMode_t mode;
    Tensor x, b = nullptr, t = nullptr;
    cudnnDataType_t computes_in = CUDNN_DATA_FLOAT;
    std::optional<int64_t> axis = {};
  };
  Tensor pointwise(const Pointwise& p, Tensor y) {
    CudnnDescription mode(library_, CUDNN_BACKEND_POINTWISE_DESCRIPTOR);
    mode.set(CUDNN_ATTR_POINTWISE_MODE, p.mode);
    mode.set(CUDNN_ATTR_POINTWISE_MATH_PREC, p.computes_in);
    if (p.axis) mode.set(CUDNN_ATTR_POINTWISE_AXIS, *p.axis);
    CudnnDescription operation(library_, CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR);
    operation.set(CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, keep(mode.finish()));
    operation.set(CUDNN_ATTR_OPERATION_POINTWISE_XDESC, p.x);
    if (p.b != nullptr) operation.set(CUDNN_ATTR_OPERATION_POINTWISE_BDESC, p.b);
    if (p.t != nullptr) operation.set(CUDNN_ATTR_OPERATION_POINTWISE_TDESC, p.t);
    return submit(operation.set(CUDNN_ATTR_OPERATION_POINTWISE_YDESC, y), y);
  }
  Tensor reduce(cudnnReduceTensorOp_t how, Tensor x, Tensor y) {
    CudnnDescription mode(library_, CUDNN_BACKEND_REDUCTION_DESCRIPTOR);
    mode.set(CUDNN_ATTR_REDUCTION_OPERATOR, how);
    mode.set(CUDNN_ATTR_REDUCTION_COMP_TYPE, CUDNN_DATA_FLOAT);
    CudnnDescription operation(library_, CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR);
    operation.set(CUDNN_ATTR_OPERATION_REDUCTION_DESC, keep(mode.finish()));
    operation.set(CUDNN_ATTR_OPERATION_REDUCTION_XDESC, x);
    return submit(operation.set(CUDNN_ATTR_OPERATION_REDUCTION_YDESC, y), y);
  }
  Tensor multiply(Tensor a, Tensor b, Tensor c) {
    CudnnDescription mode(library_, CUDNN_BACKEND_MATMUL_DESCRIPTOR);
    mode.set(CUDNN_ATTR_MATMUL_COMP_TYPE, CUDNN_DATA_FLOAT);
    CudnnDescription operation(library_, CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR);
    operation.set(CUDNN_ATTR_OPERATION_MATMUL_DESC, keep(mode.finish()));
    operation.set(CUDNN_ATTR_OPERATION_MATMUL_ADESC, a);
    operation.set(CUDNN_ATTR_OPERATION_MATMUL_BDESC, b);
    return submit(operation.set(CUDNN_ATTR_OPERATION_MATMUL_CDESC, c), c);
  }
  /// A tensor with the same values and another description.
  Tensor view(Tensor x, Tensor y) {
    CudnnDescription operation(library_, CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR);
    operation.set(CUDNN_ATTR_OPERATION_RESHAPE_XDESC, x);
    return submit(operation.set(CUDNN_ATTR_OPERATION_RESHAPE_YDESC, y), y);
  }
  /// For each key, sums over all queries and over all heads that read the key.
  void multiply_heads(Tensor of_scores, Tensor of_queries, CudnnTensor name) {
    const int64_t h = a_.num_heads, t = a_.num_tokens;
    const Tensor turned =
        view(of_scores, unstored({a_.batch, h, t, t}, {h * t * t, t * t, 1, t}, io()));
    const Tensor of_keys = heads(name, a_.num_kv_heads);
    if (h == a_.num_kv_heads) {
      multiply(turned, of_queries, of_keys);
    } else {
      reduce(CUDNN_REDUCE_TENSOR_ADD, multiply(turned, of_queries, unstored(io(), a_.head_size)),
             of_keys);
    }
  }
  Tensor submit(CudnnDescription& operation, Tensor result) {
    operations_.push_back(keep(operation.finish()));
    return result;
  }

  /// The index of the query (axis 2) or of the key (axis 3) of each score.
  Tensor index(Tensor s, int64_t axis) {
    return pointwise({.mode = CUDNN_POINTWISE_GEN_INDEX, .x = s, .axis = axis},
                     scores(CUDNN_DATA_INT32));
  }
  /// The scores where `x compares b` is true, and `nothing` elsewhere.
  Tensor masked(Tensor s, cudnnPointwiseMode_t compares, Tensor x, Tensor b, Tensor nothing) {
    const Tensor seen =
        pointwise({.mode = compares, .x = x, .b = b, .computes_in = CUDNN_DATA_BOOLEAN},
                  scores(CUDNN_DATA_BOOLEAN));
    return pointwise({.mode = CUDNN_POINTWISE_BINARY_SELECT, .x = s, .b = nothing, .t = seen},
                     scores());
  }
  Tensor masked(Tensor s);
  Tensor scaled_products(Tensor queries, Tensor keys, Tensor scale);

  const CudnnLibrary& library_;
  const CudnnAttention& a_;
  std::vector<CudnnDescriptor> made_;
  std::vector<cudnnBackendDescriptor_t> operations_;
  int64_t next_unstored_ = 100;  // after the values of CudnnTensor
};

Graph::Tensor Graph::masked(Tensor s) {
  if (!a_.causal) return s;
  const Tensor query = index(s, 2);
  s = masked(s, CUDNN_POINTWISE_CMP_GE, query, index(s, 3), number(CudnnTensor::Nothing));
  if (!a_.has_window) return s;
  // The library takes windows as floats.
  const Tensor query_again = index(s, 2);
  const Tensor end = pointwise(
      {.mode = CUDNN_POINTWISE_ADD, .x = index(s, 3), .b = number(CudnnTensor::Window), .axis = 3},
      scores());
  return masked(s, CUDNN_POINTWISE_CMP_GT, end, query_again, number(CudnnTensor::NothingBefore));
}

Graph::Tensor Graph::scaled_products(Tensor queries, Tensor keys, Tensor scale) {
  return pointwise(
      {.mode = CUDNN_POINTWISE_MUL, .x = multiply(queries, keys, scores()), .b = scale}, scores());
}

void Graph::attend() {
  const Tensor queries = heads(CudnnTensor::Queries, a_.num_heads);
  const Tensor keys = right_factor(CudnnTensor::Keys);
  const Tensor values = heads(CudnnTensor::Values, a_.num_kv_heads);
  const Tensor out = result(CudnnTensor::Out);
  const Tensor log_sum_exp = row_sums(CudnnTensor::LogSumExp);

  const Tensor s = masked(scaled_products(queries, keys, number(CudnnTensor::Scale)));
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

void Graph::differentiate() {
  const Tensor queries = heads(CudnnTensor::Queries, a_.num_heads);
  const Tensor keys = right_factor(CudnnTensor::Keys);
  const Tensor values = right_factor(CudnnTensor::Values);
  const Tensor dout = result(CudnnTensor::OutGradient);
  const Tensor inner = row_sums(CudnnTensor::Inner);
  const Tensor scale = number(CudnnTensor::Scale);

  const Tensor products =
      pointwise({.mode = CUDNN_POINTWISE_MUL, .x = dout, .b = result(CudnnTensor::Out)},
                unstored(CUDNN_DATA_FLOAT, a_.head_size));
  pointwise({.mode = CUDNN_POINTWISE_MUL,
             .x = reduce(CUDNN_REDUCE_TENSOR_ADD, products, rows()),
             .b = number(CudnnTensor::One)},
            inner);

  const Tensor below = pointwise({.mode = CUDNN_POINTWISE_SUB,
                                  .x = scaled_products(queries, keys, scale),
                                  .b = row_sums(CudnnTensor::LogSumExp)},
                                 scores());
  const Tensor weights = pointwise({.mode = CUDNN_POINTWISE_EXP, .x = masked(below)}, scores());
  multiply_heads(weights, dout, CudnnTensor::ValueGradients);

  const Tensor dweights = multiply(dout, values, scores());
  const Tensor centred =
      pointwise({.mode = CUDNN_POINTWISE_SUB, .x = dweights, .b = inner}, scores());
  const Tensor dproducts =
      pointwise({.mode = CUDNN_POINTWISE_MUL, .x = centred, .b = weights}, scores());
  const Tensor dscores =
      pointwise({.mode = CUDNN_POINTWISE_MUL, .x = dproducts, .b = scale}, scores());
  multiply_heads(dscores, queries, CudnnTensor::KeyGradients);
  // The graph has no fp32 sums to which the library could add with atomics. So the library stores
  // dscores and multiplies in a fixed order.
  const Tensor keys_again =
      view(keys,
           unstored({a_.batch, a_.num_kv_heads, a_.num_tokens, a_.head_size}, qkv_strides(), io()));
  multiply(dscores, keys_again, heads(CudnnTensor::QueryGradients, a_.num_heads));
}

}  // namespace

CudnnDescriptor describe_attention(const CudnnLibrary& library, const CudnnTarget& target,
                                   const CudnnAttention& attention) {
  Graph graph(library, attention);
  if (attention.backward) {
    graph.differentiate();
  } else {
    graph.attend();
  }
  return graph.finish(target);
}

}  // namespace ebb
