// Where the rows of an operand lie.
#pragma once

#include <stdint.h>

namespace mudnn {

/// Row r begins at element (r / inner) * outer_stride + (r % inner) * inner_stride: rows in at most two levels, as the
/// heads of tokens whose queries, keys and values lie side by side.
template <class Pointer>
struct StridedRows {
  Pointer data = nullptr;
  int64_t outer_stride = 0;
  int64_t inner = 1;
  int64_t inner_stride = 0;
};
using ConstRows = StridedRows<const void*>;
using Rows = StridedRows<void*>;

}  // namespace mudnn
