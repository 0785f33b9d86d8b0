// Sorts the rows of dy, the gradient of looked-up rows, by the row of the table that they belong
// to.
#pragma once

#include "cuda/kernels/device_code.h"

namespace ebb::cuda {

/// Rows with the same index are in row order. Index v has the places [begins[v], begins[v + 1]).
struct SortedRows {
  const int32_t* indices;  ///< (n) sorted; an index outside the table counts as num_indices
  const int32_t* rows;     ///< (n) the row that had this index
  const int32_t* begins;   ///< (num_indices + 1) the last: the first place outside of the table
  int64_t n, num_indices;
};

/// The int32_t that sort_rows() needs.
int64_t sort_rows_scratch(int64_t n, int64_t num_indices);

/// Sorts `indices` (n). The sort is stable. The result is in `scratch`, sort_rows_scratch() long.
/// REQUIRES: n and num_indices are less than 2^31.
SortedRows sort_rows(cudaStream_t stream, const int32_t* indices, int64_t n, int64_t num_indices,
                     int32_t* scratch);

}  // namespace ebb::cuda
