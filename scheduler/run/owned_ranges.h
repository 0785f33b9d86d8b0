// Which elements of a parameter are in the chunks of some owners. A pure function.
#pragma once

#include <vector>

#include "chunk/layout.h"

namespace ebb {

/// Some of the ranks of a run, for each rank whether it is one of them. {true}: a run of one rank.
using OwnerSet = std::vector<bool>;

/// The elements of a parameter that these ranks own, counted from its first element. The ranges are
/// ascending and do not touch each other.
std::vector<ElementRange> owned_ranges(const Layout& layout, ParameterId id,
                                       const OwnerSet& owners);

}  // namespace ebb
