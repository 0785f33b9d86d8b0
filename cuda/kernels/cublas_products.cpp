#include <algorithm>
#include <array>
#include <map>
#include <optional>
#include <string>

#include "cuda/kernels/cublas_library.h"
#include "cuda/linear.h"
#include "device/errors.h"

namespace ebb {
namespace {

template <class T>
using Owned = std::unique_ptr<std::remove_pointer_t<T>, cublasStatus_t (*)(T)>;

cudaDataType_t type_of(DType dtype) {
  if (dtype == DType::F32) return CUDA_R_32F;
  return dtype == DType::BF16 ? CUDA_R_16BF : CUDA_R_16F;
}

/// The alignment of a pointer in bytes, at most the alignment that the fastest kernels need. So the
/// result depends on shapes and not on the address of a tensor.
uint32_t alignment_of(const void* data) {
  uint32_t bytes = 16;
  while (reinterpret_cast<uintptr_t>(data) % bytes != 0) bytes /= 2;
  return bytes;
}

/// The properties of a product on which the choice of an algorithm depends.
struct Key {
  std::array<int64_t, 6> sizes;       // m, n, k, strides of a, b and d
  std::array<int, 8> kind;            // types, transposes, write, bias, epilogue, sums of b
  std::array<uint32_t, 6> alignment;  // a, b, d, bias or sums of b, before, the old matrix
  auto operator<=>(const Key&) const = default;

  explicit Key(const MatrixProduct& p)
      : sizes{p.m, p.n, p.k, p.a.stride, p.b.stride, p.d_stride},
        kind{static_cast<int>(p.dtype),
             static_cast<int>(p.d_dtype),
             p.a.transposed,
             p.b.transposed,
             p.write == Write::Add,
             p.bias != nullptr,
             static_cast<int>(p.epilogue),
             p.b_sums != nullptr},
        alignment{alignment_of(p.a.data), alignment_of(p.b.data),
                  alignment_of(p.d),      alignment_of(p.b_sums != nullptr ? p.b_sums : p.bias),
                  alignment_of(p.before), alignment_of(p.added())} {}
};

/// The library's constant for the epilogue, bias and sums of a product.
cublasLtEpilogue_t epilogue_of(const MatrixProduct& p) {
  if (p.b_sums != nullptr) return CUBLASLT_EPILOGUE_BGRADB;
  const bool bias = p.bias != nullptr;
  switch (p.epilogue) {
    case Epilogue::GeluSlope:
      return CUBLASLT_EPILOGUE_DGELU;
    case Epilogue::None:
      break;
  }
  return bias ? CUBLASLT_EPILOGUE_BIAS : CUBLASLT_EPILOGUE_DEFAULT;
}

/// All descriptions that a product needs, without its pointers.
struct Plan {
  Owned<cublasLtMatmulDesc_t> operation;
  Owned<cublasLtMatrixLayout_t> a, b, d;
  cublasLtMatmulAlgo_t algorithm;
};

std::string text(const MatrixProduct& p) {
  return std::string(name_of(p.dtype)) + " (" + std::to_string(p.m) + ", " + std::to_string(p.k) +
         ") times (" + std::to_string(p.k) + ", " + std::to_string(p.n) + ") to " +
         std::string(name_of(p.d_dtype));
}

class CublasProducts final : public MatrixProducts {
 public:
  CublasProducts()
      : handle_(make_handle()), fuses_gelu_(gelu_is_faster_with_products(architecture())) {}

  bool can_multiply(const MatrixProduct& p) override {
    return (p.epilogue == Epilogue::None || fuses_gelu_) && plan_for(p).has_value();
  }

  void multiply(cudaStream_t stream, const MatrixProduct& p, std::byte* workspace) override {
    const std::optional<Plan>& found = plan_for(p);
    if (!found) throw DeviceError(no_algorithm(p));
    const Plan& plan = *found;
    point_to(plan, p, p.b_sums != nullptr ? p.b_sums : p.bias, p.before);
    const float alpha = 1.0f, beta = p.write == Write::Add ? 1.0f : 0.0f;
    check(lt_.Matmul(handle_.get(), plan.operation.get(), &alpha, p.a.data, plan.a.get(), p.b.data,
                     plan.b.get(), &beta, p.added(), plan.d.get(), p.d, plan.d.get(),
                     &plan.algorithm, workspace, kProductWorkspaceBytes, stream),
          text(p));
  }

 private:
  void check(cublasStatus_t status, const std::string& what) const {
    if (status == CUBLAS_STATUS_SUCCESS) return;
    throw DeviceError("cuBLASLt: " + what + ": " + lt_.GetStatusString(status));
  }

  /// Of the current device of this thread.
  static int architecture() {
    int device = 0, major = 0, minor = 0;
    cudaError_t status = cudaGetDevice(&device);
    const auto ask = [&](cudaDeviceAttr which, int& value) {
      if (status == cudaSuccess) status = cudaDeviceGetAttribute(&value, which, device);
    };
    ask(cudaDevAttrComputeCapabilityMajor, major);
    ask(cudaDevAttrComputeCapabilityMinor, minor);
    if (status == cudaSuccess) return 10 * major + minor;
    throw DeviceError(std::string("asking for the GPU's architecture: ") +
                      cudaGetErrorString(status));
  }

  Owned<cublasLtHandle_t> make_handle() const {
    cublasLtHandle_t handle = nullptr;
    check(lt_.Create(&handle), "starting");
    return {handle, lt_.Destroy};
  }
  Owned<cublasLtMatmulDesc_t> make_operation() const {
    cublasLtMatmulDesc_t operation = nullptr;
    check(lt_.MatmulDescCreate(&operation, CUBLAS_COMPUTE_32F, CUDA_R_32F), "describing a product");
    return {operation, lt_.MatmulDescDestroy};
  }
  Owned<cublasLtMatmulPreference_t> make_preference() const {
    cublasLtMatmulPreference_t preference = nullptr;
    check(lt_.MatmulPreferenceCreate(&preference), "asking for an algorithm");
    return {preference, lt_.MatmulPreferenceDestroy};
  }
  /// The layout of a matrix in memory.
  Owned<cublasLtMatrixLayout_t> make_layout(DType dtype, int64_t rows, int64_t columns,
                                            const ColumnMajor& matrix) const {
    if (matrix.transposed) std::swap(rows, columns);
    cublasLtMatrixLayout_t layout = nullptr;
    check(lt_.MatrixLayoutCreate(&layout, type_of(dtype), static_cast<uint64_t>(rows),
                                 static_cast<uint64_t>(columns), matrix.stride),
          "describing a matrix");
    return {layout, lt_.MatrixLayoutDestroy};
  }

  template <class Value>
  void set(const Plan& plan, cublasLtMatmulDescAttributes_t attribute, const Value& value) const {
    check(lt_.MatmulDescSetAttribute(plan.operation.get(), attribute, &value, sizeof(value)),
          "describing a product");
  }
  template <class Value>
  void set(const Owned<cublasLtMatmulPreference_t>& preference,
           cublasLtMatmulPreferenceAttributes_t attribute, const Value& value) const {
    check(lt_.MatmulPreferenceSetAttribute(preference.get(), attribute, &value, sizeof(value)),
          "asking for an algorithm");
  }

  /// Sets the pointers of the epilogue: the bias or sums, and the matrix `before` of GELU.
  void point_to(const Plan& plan, const MatrixProduct& p, const void* vector,
                const void* before) const {
    if (p.bias != nullptr || p.b_sums != nullptr) {
      set(plan, CUBLASLT_MATMUL_DESC_BIAS_POINTER, vector);
    }
    if (p.epilogue != Epilogue::None) set(plan, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, before);
  }

  const std::optional<Plan>& plan_for(const MatrixProduct& p) {
    const Key key(p);
    const auto found = plans_.find(key);
    if (found != plans_.end()) return found->second;
    return plans_.emplace(key, make_plan(p, key)).first->second;
  }

  std::optional<Plan> make_plan(const MatrixProduct& p, const Key& key) const {
    Plan plan{make_operation(),
              make_layout(p.dtype, p.m, p.k, p.a),
              make_layout(p.dtype, p.k, p.n, p.b),
              make_layout(p.d_dtype, p.m, p.n, {p.d, p.d_stride, false}),
              {}};
    const auto transpose = [](const ColumnMajor& x) {
      return x.transposed ? CUBLAS_OP_T : CUBLAS_OP_N;
    };
    set(plan, CUBLASLT_MATMUL_DESC_TRANSA, transpose(p.a));
    set(plan, CUBLASLT_MATMUL_DESC_TRANSB, transpose(p.b));
    set(plan, CUBLASLT_MATMUL_DESC_EPILOGUE, epilogue_of(p));
    if (p.bias != nullptr) set(plan, CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, type_of(p.dtype));
    if (p.b_sums != nullptr) set(plan, CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, CUDA_R_32F);
    if (p.epilogue != Epilogue::None) set(plan, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, p.m);
    // The library reads the alignment of these pointers when it chooses an algorithm. It must see
    // only the alignment that the key has.
    const auto aligned = [](uint32_t bytes) {
      return reinterpret_cast<const void*>(uintptr_t{bytes});
    };
    point_to(plan, p, aligned(key.alignment[3]), aligned(key.alignment[4]));
    const auto algorithm = choose(plan, key);
    if (!algorithm) return std::nullopt;
    plan.algorithm = *algorithm;
    return plan;
  }

  /// The first algorithm of the library's ranking whose sums have a fixed order. If k is split,
  /// partial sums are stored in the workspace in fp32 and added in order.
  std::optional<cublasLtMatmulAlgo_t> choose(const Plan& plan, const Key& key) const {
    const auto preference = make_preference();
    set(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, uint64_t{kProductWorkspaceBytes});
    set(preference, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK,
        uint32_t{CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE});
    set(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, key.alignment[0]);
    set(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, key.alignment[1]);
    set(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, key.alignment[5]);
    set(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, key.alignment[2]);
    cublasLtMatmulHeuristicResult_t result = {};
    int count = 0;
    const cublasStatus_t status = lt_.MatmulAlgoGetHeuristic(
        handle_.get(), plan.operation.get(), plan.a.get(), plan.b.get(), plan.d.get(), plan.d.get(),
        preference.get(), 1, &result, &count);
    if (status == CUBLAS_STATUS_SUCCESS && count == 1) return result.algo;
    return std::nullopt;
  }

  static std::string no_algorithm(const MatrixProduct& p) {
    const Key key(p);
    return "cuBLASLt has no algorithm for " + text(p) + " (alignments of " +
           std::to_string(key.alignment[0]) + ", " + std::to_string(key.alignment[1]) + " and " +
           std::to_string(key.alignment[2]) + " B); sizes that are multiples of 8 always have one";
  }

  const CublasLibrary lt_;
  const Owned<cublasLtHandle_t> handle_;
  const bool fuses_gelu_;
  std::map<Key, std::optional<Plan>> plans_;  // without a value: no algorithm
};

}  // namespace

std::unique_ptr<MatrixProducts> create_matrix_products() {
  return std::make_unique<CublasProducts>();
}

}  // namespace ebb
