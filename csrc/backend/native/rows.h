// Tensors as the rows that mudnn's row kernels take.
#pragma once

#include <ATen/EmptyTensor.h>
#include <ATen/core/Tensor.h>

#include <optional>

#include "mudnn/rows.h"

namespace musa {

/// How the rows (all dimensions but the last) of `tensor` lie; none when their elements aren't adjacent or the
/// dimensions don't fold into two levels of strides. `data` is left null.
inline std::optional<mudnn::ConstRows> row_layout(const at::Tensor& tensor) {
  const int64_t dims = tensor.dim();
  if (tensor.is_contiguous()) {
    return mudnn::ConstRows{nullptr, dims == 0 ? 1 : tensor.size(-1), 1, 0};
  }
  if (tensor.size(-1) > 1 && tensor.stride(-1) != 1) {
    return std::nullopt;
  }
  // From the innermost dimension outward: {count, stride} of the levels found so far.
  int64_t counts[2] = {1, 1};
  int64_t strides[2] = {0, 0};
  int levels = 0;
  for (int64_t dim = dims - 2; dim >= 0; --dim) {
    const int64_t size = tensor.size(dim);
    const int64_t stride = tensor.stride(dim);
    if (size == 1) {
      continue;
    }
    if (levels > 0 && stride == strides[levels - 1] * counts[levels - 1]) {
      counts[levels - 1] *= size;
    } else if (levels < 2) {
      counts[levels] = size;
      strides[levels] = stride;
      ++levels;
    } else {
      return std::nullopt;
    }
  }
  if (levels < 2) {
    return mudnn::ConstRows{nullptr, strides[0], 1, 0};
  }
  return mudnn::ConstRows{nullptr, strides[1], counts[0], strides[0]};
}

/// The rows of `tensor`, or of a contiguous copy that is kept in `keep`.
inline mudnn::ConstRows rows_or_copy(const at::Tensor& tensor, at::Tensor& keep) {
  std::optional<mudnn::ConstRows> rows = row_layout(tensor);
  keep = rows.has_value() ? tensor : tensor.contiguous();
  if (!rows.has_value()) {
    rows = row_layout(keep);
  }
  rows->data = keep.const_data_ptr();
  return *rows;
}

/// The rows of a contiguous tensor that is written to.
inline mudnn::Rows contiguous_rows(const at::Tensor& tensor) {
  return {tensor.mutable_data_ptr(), tensor.dim() == 0 ? 1 : tensor.size(-1), 1, 0};
}

/// Number of rows when there are `columns` elements in each.
inline int64_t row_count(const at::Tensor& tensor, int64_t columns) {
  return columns == 0 ? 0 : tensor.numel() / columns;
}

/// An uninitialised contiguous tensor, on the card inside a native kernel.
inline at::Tensor fresh(at::IntArrayRef sizes, at::ScalarType type) { return at::detail::empty_cpu(sizes, type); }

}  // namespace musa
