#include "io/npy_file.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <functional>
#include <numeric>
#include <string_view>

namespace ebb {
namespace {

constexpr size_t kAlignment = 64;

/// Returns the header: magic, version, length of the dictionary, the dictionary, spaces up to the
/// alignment, and a newline.
std::string header_of(std::string_view type, const std::vector<int64_t>& shape) {
  std::string text = fmt::format("{{'descr': '{}', 'fortran_order': False, 'shape': ({}{}), }}",
                                 type, fmt::join(shape, ", "), shape.size() == 1 ? "," : "");
  std::string header("\x93NUMPY\x01\x00", 8);
  const size_t unpadded = header.size() + 2 + text.size() + 1;
  text.append((kAlignment - unpadded % kAlignment) % kAlignment, ' ');
  text += '\n';
  header += static_cast<char>(text.size() & 0xff);
  header += static_cast<char>(text.size() >> 8);
  return header + text;
}

uint64_t num_elements(const std::vector<int64_t>& shape) {
  return static_cast<uint64_t>(
      std::accumulate(shape.begin(), shape.end(), int64_t{1}, std::multiplies<>()));
}

}  // namespace

template <class T>
NpyFile<T>::NpyFile(const std::string& path, const std::vector<int64_t>& shape)
    : header_(header_of(sizeof(T) == 4 ? "<f4" : "<f8", shape)),
      file_(path, header_.size() + num_elements(shape) * sizeof(T)) {
  file_.write(0, std::as_bytes(std::span(header_)));
}

template <class T>
void NpyFile<T>::write(uint64_t first, std::span<const T> values) {
  file_.write(header_.size() + first * sizeof(T), std::as_bytes(values));
}

template class NpyFile<float>;
template class NpyFile<double>;

}  // namespace ebb
