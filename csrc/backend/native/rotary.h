// Rotary position embedding as a formula of ATen operators, differentiable.
#pragma once

#include <ATen/core/Tensor.h>

namespace musa {

/// Angles [..., r] of each pair or of each element of a rotated part of `size` elements as [..., size], of each
/// element.
at::Tensor spread_angles(const at::Tensor& angles, const c10::SymInt& size, bool interleaved);

/// x [..., d] with its first `size` elements rotated; cos and sin [..., size] broadcast to x.
at::Tensor rotated(
    const at::Tensor& x, const at::Tensor& cos, const at::Tensor& sin, const c10::SymInt& size, bool interleaved);

/// Checks positions that are about to be looked up in a table of `rows` rows; IndexError in the name of `op`.
void check_positions(const char* op, const char* table, const at::Tensor& positions, int64_t rows);

}  // namespace musa
