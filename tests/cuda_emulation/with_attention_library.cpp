// A program with this file emulates a machine with a library for attention.
#include "tests/cuda_emulation/emulated_device.h"

namespace ebb::emulation {
namespace {

[[maybe_unused]] const bool set_before_main = [] {
  settings().attention_library = "plain loops";
  return true;
}();

}  // namespace
}  // namespace ebb::emulation
