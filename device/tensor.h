// A view of memory as a row-major array: pointer, element type, shape. It owns nothing.
//
// Copyable; as thread-safe as its memory. The function that returns a Tensor documents how long the
// tensor is valid. Functions that check something throw LogicError.
//
//   EBB_CHECK_TENSORS(y.shape == x.shape, "swish: y and x of one shape", y, x);
//   // throws ShapeError: swish: y and x of one shape, not y (8, 64) fp32, x (8, 128) fp32
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <string>
#include <string_view>

#include "device/dtype.h"
#include "device/errors.h"

namespace ebb {

/// Up to four dimensions, outermost first. REQUIRES, not checked: no more dimensions, and i from
/// -rank() to rank() - 1, where -1 is the last dimension. Without dimensions there is one element.
class Shape {
 public:
  static constexpr int kMaxRank = 4;

  constexpr Shape() = default;
  constexpr Shape(std::initializer_list<int64_t> dims) {
    for (int64_t d : dims) dims_[rank_++] = d;
  }
  constexpr int rank() const { return rank_; }
  constexpr int64_t operator[](int i) const { return dims_[i < 0 ? rank_ + i : i]; }
  constexpr int64_t num_elements() const {
    int64_t n = 1;
    for (int i = 0; i < rank_; ++i) n *= dims_[i];
    return n;
  }
  constexpr bool operator==(const Shape&) const = default;

 private:
  std::array<int64_t, kMaxRank> dims_{};
  int rank_ = 0;
};

struct Tensor {
  std::byte* data = nullptr;  ///< memory of the host or of a device; null: there is no tensor
  DType dtype = DType::F32;
  Shape shape;

  explicit operator bool() const { return data != nullptr; }
  int64_t num_elements() const { return shape.num_elements(); }
  size_t bytes() const { return static_cast<size_t>(num_elements()) * size_of(dtype); }
  int64_t dim(int i) const { return shape[i]; }

  /// The same memory as a matrix: all dimensions but the last become rows.
  int64_t rows() const {
    if (shape.rank() == 0) return 1;
    return shape[-1] == 0 ? 0 : num_elements() / shape[-1];
  }
  int64_t columns() const { return shape.rank() == 0 ? 1 : shape[-1]; }

  Tensor reshape(Shape to) const {
    if (to.num_elements() != num_elements()) throw_cannot_reshape(to);
    return {data, dtype, to};
  }
  /// Rows [first, first + count) of the matrix view: (count, columns).
  Tensor slice_rows(int64_t first, int64_t count) const {
    if (first < 0 || count < 0 || first + count > rows()) throw_no_rows(first, count);
    return {data + static_cast<size_t>(first * columns()) * size_of(dtype), dtype,
            Shape{count, columns()}};
  }

  /// Views of the elements. REQUIRES: T is the tensor's element type. Only tensors in host memory
  /// may be read or written through these views.
  template <class T>
  T* as() const {
    EBB_CHECK(dtype == dtype_of<T>(), "tensor has another element type");
    return reinterpret_cast<T*>(data);
  }
  template <class T>
  std::span<T> span() const {
    return {as<T>(), static_cast<size_t>(num_elements())};
  }

 private:
  [[noreturn]] void throw_cannot_reshape(Shape to) const;
  [[noreturn]] void throw_no_rows(int64_t first, int64_t count) const;
};

std::string to_string(const Shape& shape);    ///< "(8, 128)"
std::string to_string(const Tensor& tensor);  ///< "(8, 128) bf16"; "none" if there is no tensor

/// The message of a ShapeError: the rule that is broken, and the tensors with their names.
/// `names`: separated by ", ". A tensor that is not there is left out.
std::string misfit(std::string_view rule, std::string_view names,
                   std::initializer_list<Tensor> tensors);

}  // namespace ebb

/// Throws ShapeError with this message if the condition does not hold.
#define EBB_CHECK_SHAPES(condition, message)            \
  do {                                                  \
    if (!(condition)) throw ::ebb::ShapeError(message); \
  } while (0)

/// Throws ShapeError if the tensors do not satisfy the condition. `rule` is anything convertible to
/// std::string_view; names come from the source text of the arguments.
#define EBB_CHECK_TENSORS(condition, rule, ...)                                                  \
  do {                                                                                           \
    if (!(condition)) throw ::ebb::ShapeError(::ebb::misfit(rule, #__VA_ARGS__, {__VA_ARGS__})); \
  } while (0)
