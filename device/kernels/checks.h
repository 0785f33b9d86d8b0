// What the checks of kernels (device/kernels.h) share. Pure functions.
#pragma once

#include "device/errors.h"
#include "device/stream.h"
#include "device/tensor.h"

namespace ebb {

inline double count(const Tensor& t) { return static_cast<double>(t.num_elements()); }

/// The bytes of all tensors: the memory traffic of a kernel that accesses each tensor once.
template <class... Tensors>
double total_bytes(const Tensors&... tensors) {
  return (0.0 + ... + (tensors ? static_cast<double>(tensors.bytes()) : 0.0));
}

/// Whether both have the same type and the same number of elements.
inline bool alike(const Tensor& a, const Tensor& b) {
  return a.dtype == b.dtype && a.num_elements() == b.num_elements();
}

/// Whether both have the same type and the same numbers of rows and columns.
inline bool same_matrix(const Tensor& a, const Tensor& b) {
  return a.dtype == b.dtype && a.rows() == b.rows() && a.columns() == b.columns();
}

/// Whether t is a vector of n elements of this type, like biases, statistics and indices.
inline bool is_vector(const Tensor& t, DType type, int64_t n) {
  return t && t.dtype == type && t.num_elements() == n;
}

/// The cost of work outside of matrix products and attention.
inline Cost vector_cost(double flops, double bytes, std::string_view name) {
  return {.flops = flops, .vector_flops = flops, .bytes = bytes, .name = name};
}

}  // namespace ebb
