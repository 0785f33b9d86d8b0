// Images and their labels from IDX files, the format of the MNIST database:
// http://yann.lecun.com/exdb/mnist/
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

inline constexpr int64_t kNumClasses = 10;

struct Digits {
  std::vector<uint8_t> pixels;  // (size(), num_pixels), 0 to 255
  std::vector<uint8_t> labels;  // 0 to 9
  int64_t num_pixels = 0;       // of an image

  size_t size() const { return labels.size(); }
};

/// Reads FOLDER/PART-images-idx3-ubyte and FOLDER/PART-labels-idx1-ubyte, not compressed. Throws a
/// std::runtime_error that names the file.
Digits read_digits(const std::string& folder, const std::string& part);
