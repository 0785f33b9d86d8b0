// What a dry run sees of a layer: its calls, its values, and who uses them.
//
// The tape reports to a LayerObserver while it runs one micro-batch forward and backward, without
// recomputation. Values and calls are numbered within their layer, in the order of the forward.
// One thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "device/stream.h"

namespace ebb {

struct ObservedValue {
  uint32_t call = 0;  ///< that makes it; no meaning if that call has no backward
  size_t bytes = 0;
  int32_t replaced_by = -1;       ///< the value that a call in place makes of it; -1: none
  bool read_in_backward = false;  ///< by the backward of a call of the layer
  /// By a later layer; or it is the result of the layer, or of a call without a backward.
  bool used_outside = false;
};

struct ObservedCall {
  std::string_view name;  ///< static storage
  uint32_t place = 0;     ///< among all calls of the forward, also those outside of layers
  uint32_t first_value = 0, num_values = 0;
  std::vector<uint32_t> inputs = {};  ///< values of the layer that its forward reads
  Cost cost = {};                     ///< of its forward; the caller of the dry run sets it
};

struct ObservedLayer {
  std::vector<ObservedCall> calls = {};
  std::vector<ObservedValue> values = {};
};

/// The arguments are ids of the tape's values, which count up.
class LayerObserver {
 public:
  /// Values from `first_value` on are those of the next layer.
  void begin_layer(int32_t first_value);
  /// `result`: the value that the layer returns.
  void end_layer(int32_t result);
  /// The forward of the open call reads the value.
  void reads_in_forward(int32_t value);
  /// The first output of the open call takes the memory of the value.
  void replaces(int32_t value);
  /// The forward opens a call.
  void begin_call() { ++num_calls_; }
  /// The open call ends. It made the values from `first_value` on, with these sizes.
  void end_call(std::string_view name, int32_t first_value, const std::vector<size_t>& bytes);
  /// A backward reads the value.
  void reads_in_backward(int32_t value);

  /// After the backward.
  const std::vector<ObservedLayer>& layers() const { return layers_; }

 private:
  struct Place {
    ObservedLayer* layer = nullptr;  ///< nullptr: the value was not made in a layer
    uint32_t value = 0;
  };
  Place find(int32_t value);

  std::vector<ObservedLayer> layers_;
  std::vector<int32_t> first_values_;  // of each layer, ascending
  std::vector<int32_t> ends_;          // of each layer: behind its last value
  std::vector<uint32_t> inputs_;       // of the open call
  int32_t replaced_ = -1;              // by the first output of the open call
  uint32_t num_calls_ = 0;             // with the open call
  bool in_layer_ = false;
};

}  // namespace ebb
