// The address of a row.
#pragma once

#include "mudnn/kernels/vec.h"
#include "mudnn/rows.h"

namespace mudnn {
namespace {

template <class Pointer>
MUDNN_INLINE int64_t offset_of(const StridedRows<Pointer>& rows, int64_t row) {
  return rows.inner == 1 ? row * rows.outer_stride
                         : row / rows.inner * rows.outer_stride + row % rows.inner * rows.inner_stride;
}

template <class T>
MUDNN_INLINE const T* row_of(const ConstRows& rows, int64_t row) {
  return static_cast<const T*>(rows.data) + offset_of(rows, row);
}
template <class T>
MUDNN_INLINE T* row_of(const Rows& rows, int64_t row) {
  return static_cast<T*>(rows.data) + offset_of(rows, row);
}

}  // namespace
}  // namespace mudnn
