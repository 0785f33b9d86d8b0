#include "device/tensor.h"

namespace ebb {

void Tensor::throw_cannot_reshape(Shape to) const {
  throw ShapeError("a tensor " + to_string(*this) + " cannot become " + to_string(to) +
                   ", which has another number of elements");
}

void Tensor::throw_no_rows(int64_t first, int64_t count) const {
  throw ShapeError("a tensor " + to_string(*this) + " has no rows " + std::to_string(first) +
                   " to " + std::to_string(first + count));
}

std::string to_string(const Shape& shape) {
  std::string text = "(";
  for (int i = 0; i < shape.rank(); ++i) {
    text += (i > 0 ? ", " : "") + std::to_string(shape[i]);
  }
  return text + ")";
}

std::string to_string(const Tensor& tensor) {
  if (!tensor) return "none";
  return to_string(tensor.shape) + " " + std::string(name_of(tensor.dtype));
}

std::string misfit(std::string_view rule, std::string_view names,
                   std::initializer_list<Tensor> tensors) {
  std::string text(rule);
  std::string_view separator = ", not ";
  for (const Tensor& tensor : tensors) {
    const size_t end = names.find(", ");
    if (tensor) {
      text.append(separator).append(names.substr(0, end)).append(" ").append(to_string(tensor));
      separator = ", ";
    }
    names.remove_prefix(end == std::string_view::npos ? names.size() : end + 2);
  }
  return text;
}

}  // namespace ebb
