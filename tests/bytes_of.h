// The bytes of values, as a file holds them.
#pragma once

#include <string>
#include <vector>

namespace ebb::test {

template <class T>
std::string bytes_of(const std::vector<T>& values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T)};
}

}  // namespace ebb::test
