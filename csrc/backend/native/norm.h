// Layer norm and RMS norm on host tensors over card memory.
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>
#include <tuple>

#include "mudnn/types.h"

namespace musa {

/// As aten::native_layer_norm; for the direct entrance.
std::tuple<at::Tensor, at::Tensor, at::Tensor> native_layer_norm_kernel(
    const at::Tensor& input, at::IntArrayRef normalized_shape, const std::optional<at::Tensor>& weight,
    const std::optional<at::Tensor>& bias, double eps);

/// Types in which the kernels work on rows of `x` with this weight, which may be undefined: the same, or float32 for
/// the weight of 16-bit rows. None where they can't.
struct NormDtypes {
  mudnn::Dtype rows;
  mudnn::Dtype weight;
};
std::optional<NormDtypes> norm_dtypes(const at::Tensor& x, const at::Tensor& weight);

/// RMS norm over the last dimension as a formula of ATen operators: in float32 (float64 for float64), where the result
/// is left. `weight` may be undefined; `offset` is added to it.
at::Tensor rms_norm_in_op_math(const at::Tensor& x, const at::Tensor& weight, double eps, double offset);

}  // namespace musa
