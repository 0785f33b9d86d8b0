#include <cublasLt.h>

#include <algorithm>
#include <array>
#include <map>
#include <string>

#include "cuda/linear.h"
#include "device/errors.h"

namespace ebb {
namespace {

void check(cublasStatus_t status, const char* what) {
  if (status == CUBLAS_STATUS_SUCCESS) return;
  throw DeviceError(std::string("cuBLASLt: ") + what + ": " + cublasLtGetStatusString(status));
}

template <class T, cublasStatus_t (*kDestroy)(T)>
struct Destroy {
  using pointer = T;
  void operator()(T handle) const { kDestroy(handle); }
};
template <class T, cublasStatus_t (*kDestroy)(T)>
using Owned = std::unique_ptr<std::remove_pointer_t<T>, Destroy<T, kDestroy>>;

using Handle = Owned<cublasLtHandle_t, cublasLtDestroy>;
using Operation = Owned<cublasLtMatmulDesc_t, cublasLtMatmulDescDestroy>;
using Layout = Owned<cublasLtMatrixLayout_t, cublasLtMatrixLayoutDestroy>;
using Preference = Owned<cublasLtMatmulPreference_t, cublasLtMatmulPreferenceDestroy>;

cudaDataType_t type_of(DType dtype) { return dtype == DType::F32 ? CUDA_R_32F : CUDA_R_16BF; }

template <class Value>
void set(const Operation& operation, cublasLtMatmulDescAttributes_t attribute, const Value& value) {
  check(cublasLtMatmulDescSetAttribute(operation.get(), attribute, &value, sizeof(value)),
        "describing a product");
}

template <class Value>
void set(const Preference& preference, cublasLtMatmulPreferenceAttributes_t attribute,
         const Value& value) {
  check(cublasLtMatmulPreferenceSetAttribute(preference.get(), attribute, &value, sizeof(value)),
        "asking for an algorithm");
}

/// Bytes that a pointer is aligned to, up to what the fastest kernels ask for. Not more, so that it
/// follows from shapes and not from where a tensor happens to lie.
uint32_t alignment_of(const void* data) {
  uint32_t bytes = 16;
  while (reinterpret_cast<uintptr_t>(data) % bytes != 0) bytes /= 2;
  return bytes;
}

/// What an algorithm is chosen by.
struct Key {
  std::array<int64_t, 5> sizes;  // m, n, k, strides of a and b
  std::array<int, 6> kind;       // types, transposes, write, bias
  std::array<uint32_t, 3> alignment;
  auto operator<=>(const Key&) const = default;

  explicit Key(const MatrixProduct& p)
      : sizes{p.m, p.n, p.k, p.a.stride, p.b.stride},
        kind{static_cast<int>(p.dtype),
             static_cast<int>(p.d_dtype),
             p.a.transposed,
             p.b.transposed,
             p.write == Write::Add,
             p.bias != nullptr},
        alignment{alignment_of(p.a.data), alignment_of(p.b.data), alignment_of(p.d)} {}
};

Layout layout_of(DType dtype, int64_t rows, int64_t columns, int64_t stride) {
  cublasLtMatrixLayout_t layout = nullptr;
  check(cublasLtMatrixLayoutCreate(&layout, type_of(dtype), static_cast<uint64_t>(rows),
                                   static_cast<uint64_t>(columns), stride),
        "describing a matrix");
  return Layout(layout);
}

Layout layout_of(DType dtype, int64_t rows, int64_t columns, const ColumnMajor& matrix) {
  if (matrix.transposed) std::swap(rows, columns);
  return layout_of(dtype, rows, columns, matrix.stride);
}

/// All that a product needs but its pointers.
struct Plan {
  Operation operation;
  Layout a, b, d;
  cublasLtMatmulAlgo_t algorithm;
};

std::string text(const MatrixProduct& p) {
  return std::string(name_of(p.dtype)) + " (" + std::to_string(p.m) + ", " + std::to_string(p.k) +
         ") times (" + std::to_string(p.k) + ", " + std::to_string(p.n) + ") to " +
         std::string(name_of(p.d_dtype));
}

class CublasProducts final : public MatrixProducts {
 public:
  CublasProducts() {
    cublasLtHandle_t handle = nullptr;
    check(cublasLtCreate(&handle), "starting");
    handle_.reset(handle);
  }

  void multiply(cudaStream_t stream, const MatrixProduct& p, std::byte* workspace) override {
    const Plan& plan = plan_for(p);
    if (p.bias != nullptr) set(plan.operation, CUBLASLT_MATMUL_DESC_BIAS_POINTER, p.bias);
    const float alpha = 1.0f, beta = p.write == Write::Add ? 1.0f : 0.0f;
    check(cublasLtMatmul(handle_.get(), plan.operation.get(), &alpha, p.a.data, plan.a.get(),
                         p.b.data, plan.b.get(), &beta, p.d, plan.d.get(), p.d, plan.d.get(),
                         &plan.algorithm, workspace, kProductWorkspaceBytes, stream),
          text(p).c_str());
  }

 private:
  const Plan& plan_for(const MatrixProduct& p) {
    const Key key(p);
    const auto found = plans_.find(key);
    return found != plans_.end() ? found->second
                                 : plans_.emplace(key, make_plan(p, key)).first->second;
  }

  Plan make_plan(const MatrixProduct& p, const Key& key) {
    cublasLtMatmulDesc_t operation = nullptr;
    check(cublasLtMatmulDescCreate(&operation, CUBLAS_COMPUTE_32F, CUDA_R_32F), "describing");
    Plan plan{Operation(operation),
              layout_of(p.dtype, p.m, p.k, p.a),
              layout_of(p.dtype, p.k, p.n, p.b),
              layout_of(p.d_dtype, p.m, p.n, p.m),
              {}};
    const auto transpose = [](const ColumnMajor& x) {
      return x.transposed ? CUBLAS_OP_T : CUBLAS_OP_N;
    };
    set(plan.operation, CUBLASLT_MATMUL_DESC_TRANSA, transpose(p.a));
    set(plan.operation, CUBLASLT_MATMUL_DESC_TRANSB, transpose(p.b));
    if (p.bias != nullptr) {
      set(plan.operation, CUBLASLT_MATMUL_DESC_EPILOGUE, CUBLASLT_EPILOGUE_BIAS);
      set(plan.operation, CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, type_of(p.dtype));
      set(plan.operation, CUBLASLT_MATMUL_DESC_BIAS_POINTER, p.bias);
    }
    plan.algorithm = choose(p, plan, key);
    return plan;
  }

  /// The first of the library's ranking whose sums have an order: parts of k that are added apart
  /// go through the workspace in fp32.
  cublasLtMatmulAlgo_t choose(const MatrixProduct& p, const Plan& plan, const Key& key) {
    cublasLtMatmulPreference_t made = nullptr;
    check(cublasLtMatmulPreferenceCreate(&made), "asking for an algorithm");
    const Preference preference(made);
    set(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, uint64_t{kProductWorkspaceBytes});
    set(preference, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK,
        uint32_t{CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE});
    set(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, key.alignment[0]);
    set(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, key.alignment[1]);
    set(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, key.alignment[2]);
    set(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, key.alignment[2]);
    cublasLtMatmulHeuristicResult_t result = {};
    int count = 0;
    const cublasStatus_t status = cublasLtMatmulAlgoGetHeuristic(
        handle_.get(), plan.operation.get(), plan.a.get(), plan.b.get(), plan.d.get(), plan.d.get(),
        preference.get(), 1, &result, &count);
    if (status != CUBLAS_STATUS_SUCCESS || count == 0) {
      throw DeviceError("cuBLASLt has no algorithm for " + text(p) + " (alignments of " +
                        std::to_string(key.alignment[0]) + ", " + std::to_string(key.alignment[1]) +
                        " and " + std::to_string(key.alignment[2]) +
                        " B); sizes that are multiples of 8 always have one");
    }
    return result.algo;
  }

  Handle handle_;
  std::map<Key, Plan> plans_;
};

}  // namespace

std::unique_ptr<MatrixProducts> create_matrix_products() {
  return std::make_unique<CublasProducts>();
}

}  // namespace ebb
