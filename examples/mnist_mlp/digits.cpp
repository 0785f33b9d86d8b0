#include "digits.h"

#include <algorithm>
#include <fstream>
#include <iterator>
#include <stdexcept>

namespace {

/// An IDX file of unsigned bytes: 0, 0, 8, the number of dimensions, each dimension as a big-endian
/// 32-bit number, the values.
struct Idx {
  std::vector<size_t> dimensions;
  std::vector<uint8_t> values;
};

Idx read_idx(const std::string& path, size_t num_dimensions) {
  std::ifstream file(path, std::ios::binary);
  if (!file) throw std::runtime_error(path + ": cannot be opened");
  std::vector<uint8_t> bytes{std::istreambuf_iterator<char>(file), {}};
  const size_t header = 4 + 4 * num_dimensions;
  if (bytes.size() < header || bytes[0] != 0 || bytes[1] != 0 || bytes[2] != 8 ||
      bytes[3] != num_dimensions) {
    throw std::runtime_error(path + ": not an IDX file of bytes in " +
                             std::to_string(num_dimensions) + " dimensions (is it compressed?)");
  }
  Idx idx;
  size_t num_values = 1;
  for (size_t at = 4; at < header; at += 4) {
    idx.dimensions.push_back(size_t{bytes[at]} << 24 | bytes[at + 1] << 16 | bytes[at + 2] << 8 |
                             bytes[at + 3]);
    num_values *= idx.dimensions.back();
  }
  if (bytes.size() != header + num_values) {
    throw std::runtime_error(path + ": " + std::to_string(bytes.size() - header) +
                             " values, its header says " + std::to_string(num_values));
  }
  idx.values.assign(bytes.begin() + static_cast<std::ptrdiff_t>(header), bytes.end());
  return idx;
}

}  // namespace

Digits read_digits(const std::string& folder, const std::string& part) {
  const std::string images_path = folder + "/" + part + "-images-idx3-ubyte";
  const std::string labels_path = folder + "/" + part + "-labels-idx1-ubyte";
  Idx images = read_idx(images_path, 3);
  Idx labels = read_idx(labels_path, 1);
  if (images.dimensions[0] != labels.dimensions[0] || labels.values.empty()) {
    throw std::runtime_error(images_path + ": " + std::to_string(images.dimensions[0]) +
                             " images, and " + std::to_string(labels.dimensions[0]) + " labels");
  }
  if (*std::ranges::max_element(labels.values) >= kNumClasses) {
    throw std::runtime_error(labels_path + ": a label that is no digit");
  }
  return {.pixels = std::move(images.values),
          .labels = std::move(labels.values),
          .num_pixels = static_cast<int64_t>(images.dimensions[1] * images.dimensions[2])};
}
