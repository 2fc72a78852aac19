// Masks of attention: numbers to add, or truth values of what attends.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/ops/zeros.h>

#include <limits>
#include <optional>

namespace musa {

inline bool has_mask(const std::optional<at::Tensor>& mask) { return mask.has_value() && mask->defined(); }

/// A mask of numbers of the query's dtype, as PyTorch's own kernels want it.
inline std::optional<at::Tensor> number_mask(const std::optional<at::Tensor>& mask, const at::Tensor& query) {
  if (!has_mask(mask) || mask->scalar_type() != at::kBool) {
    return mask;
  }
  return at::zeros_symint(mask->sym_sizes(), query.options())
      .masked_fill(mask->logical_not(), -std::numeric_limits<double>::infinity());
}

}  // namespace musa
