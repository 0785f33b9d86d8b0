// Which elements of a parameter are in the chunks of some ranks. A pure function.
#pragma once

#include <vector>

#include "chunk/layout.h"

namespace ebb {

/// Some of the ranks of a run: a bool for each rank. {true} is the only rank of a run of one.
using RankSet = std::vector<bool>;

/// The elements of a parameter that these ranks own, counted from its first element. The ranges are
/// ascending and do not touch each other.
std::vector<ElementRange> owned_ranges(const Layout& layout, ParameterId id, const RankSet& owners);

}  // namespace ebb
