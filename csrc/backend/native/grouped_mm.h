// The grouped matrix product of host tensors.
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>

namespace musa {

/// aten::_grouped_mm: every group by our kernels, or all of them by PyTorch's composite (which also words the errors
/// of wrong calls) where it is switched off or the operands aren't what the kernels take. What belongs to no group is
/// not written.
at::Tensor grouped_mm_on_host(
    const at::Tensor& self, const at::Tensor& mat2, const std::optional<at::Tensor>& offs,
    const std::optional<at::Tensor>& bias, std::optional<at::ScalarType> out_dtype);

}  // namespace musa
