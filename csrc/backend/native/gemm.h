// Products of host tensors by mudnn's kernels.
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>

namespace musa {

/// beta * addend + alpha * (a b) as mm, addmm, bmm and baddbmm define it.
struct Product {
  const at::Tensor& a;  // [m, k] or [batch, m, k]
  const at::Tensor& b;  // [k, n] or [batch, k, n], of a's dtype
  const at::Tensor* addend = nullptr;  // of the result's shape or expandable to it; not looked at when beta is 0
  float beta = 0;
  float alpha = 1;
};

/// Whether shapes and dtypes fit together and are ones that the kernels know. The result's dtype is `out_dtype`.
bool can_multiply(const Product& product, c10::ScalarType out_dtype);

/// The result of a product that can_multiply accepted: a new tensor, or written to `out` of the right shape, whatever
/// its strides and whatever it overlaps with.
at::Tensor multiply(const Product& product, c10::ScalarType out_dtype);
void multiply_into(const Product& product, const at::Tensor& out);

}  // namespace musa
