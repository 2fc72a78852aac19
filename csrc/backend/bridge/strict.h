// Strict mode (TORCH_MUSA_SIM_STRICT=1): dtypes that CUDA's kernels refuse are refused here, though the CPU takes them.
#pragma once

#include <c10/core/ScalarType.h>

#include <cstdint>
#include <string_view>

namespace musa {

/// One bit per c10::ScalarType that CUDA accepts for `op` (name without namespace and overload), from
/// data/cuda_dtypes.tsv. All bits outside strict mode and for operators that the table doesn't list.
uint64_t accepted_dtypes(std::string_view op);

/// Throws CUDA's "not implemented for" unless `dtype` is in `accepted`.
void check_accepted(uint64_t accepted, c10::ScalarType dtype, std::string_view op);

}  // namespace musa
