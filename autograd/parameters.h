// The parameters that a model declares: names, shapes, initial values. A plain value.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "chunk/layout.h"

namespace ebb {

/// Initial values: normally distributed, with the mean `constant`. With a standard deviation of 0
/// all values are `constant`.
struct Init {
  float standard_deviation = 0;
  float constant = 0;
  static Init normal(float standard_deviation) { return {standard_deviation, 0}; }
  static Init zeros() { return {}; }
  static Init ones() { return {0, 1}; }
};

struct Parameter {
  std::string name;  ///< differs from all other names; the random initial values depend on it
  Shape shape;       ///< weight decay applies to parameters of two or more dimensions
  Init init;
  float learning_rate_factor = 1;  ///< multiplies the learning rate of the step
};

/// The id of a parameter is its position in the order of declaration. (The offsets in the parameter
/// space follow the order of first use.) Ids are not checked.
class Parameters {
 public:
  ParameterId add(std::string name, Shape shape, Init init, float learning_rate_factor = 1) {
    list_.push_back({std::move(name), shape, init, learning_rate_factor});
    return static_cast<ParameterId>(list_.size() - 1);
  }
  uint32_t size() const { return static_cast<uint32_t>(list_.size()); }
  const Parameter& operator[](ParameterId id) const { return list_[id]; }
  auto begin() const { return list_.begin(); }
  auto end() const { return list_.end(); }

 private:
  std::vector<Parameter> list_;
};

}  // namespace ebb
