// Layers as messages and reports name them. Pure functions.
//
// A layer is the part of a parameter's name up to its first number, "model.layers.3"; without a
// number, the name without its last part, "wte" of "wte.weight"; a name without a dot is a layer.
#pragma once

#include <string>
#include <string_view>

#include "chunk/layout.h"

namespace ebb {

std::string layer_of(std::string_view parameter_name);
/// The layers of a parameter chunk: "h.3", "h.3 to h.4".
std::string layers_of(const Layout& layout, ChunkIndex chunk);

}  // namespace ebb
