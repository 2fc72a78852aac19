// The matrix product of host tensors, for the direct entrance.
#pragma once

#include <ATen/core/Tensor.h>

namespace musa {

/// aten::mm by our kernel, or by the CPU's (which then is noted, see kernels.h).
at::Tensor mm_on_host(const at::Tensor& a, const at::Tensor& b);

}  // namespace musa
