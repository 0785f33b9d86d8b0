#include "cuda/data_error.h"

#include <string>

#include "device/errors.h"

namespace ebb {

void DataError::check() {
  if (kind == None) return;
  const DataError found = *this;
  *this = {};
  const std::string at = " at row " + std::to_string(found.row);
  const std::string limit = std::to_string(found.limit);
  switch (found.kind) {
    case Token:
      throw LogicError("embedding: index " + std::to_string(found.value) + at +
                       " is outside the table of " + limit + " rows");
    case Target:
      throw LogicError("cross_entropy: target " + std::to_string(found.value) + at +
                       " is not one of " + limit + " classes");
    case Position:
      throw LogicError("attention_cached: position " + std::to_string(found.value) + at +
                       " does not follow the one before, or is none of the cache's " + limit);
    default:
      throw LogicError("attention: document start " + std::to_string(found.value) + " of token " +
                       std::to_string(found.row % found.limit) + " in row " +
                       std::to_string(found.row / found.limit) + " is neither the token itself " +
                       "nor the start of the token before");
  }
}

}  // namespace ebb
