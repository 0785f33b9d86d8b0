// Replaces cuDNN in builds without its header.
#include "cuda/attention_library.h"
#include "device/errors.h"

namespace ebb {

std::string attention_library_name() { return ""; }

std::unique_ptr<AttentionLibrary> create_attention_library() {
  throw LogicError("this build knows no library for attention");
}

}  // namespace ebb
