// Rows of a table, by number.
#pragma once

#include "mudnn/parallel.h"

namespace mudnn {

/// out[i] = table[ids[i]], rows of `row_bytes` bytes; out's are contiguous. The ids were checked.
struct GatherProblem {
  int64_t count;
  int64_t row_bytes;
  const void* table;
  int64_t table_stride;  // in bytes
  const int64_t* ids;
  void* out;
};
void gather_rows(const GatherProblem& problem, const Parallel& parallel);

}  // namespace mudnn
