// What the gradients of torch.ops.musa's operators share.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>

namespace musa {

inline bool wants_gradient(const at::Tensor& tensor) {
  return at::GradMode::is_enabled() && tensor.defined() && tensor.requires_grad();
}
inline bool wants_gradient(const std::optional<at::Tensor>& tensor) {
  return tensor.has_value() && wants_gradient(*tensor);
}

/// Whether a call with these arguments must be recorded for the backward pass.
template <class... Tensors>
bool wants_gradient(const at::Tensor& first, const Tensors&... others) {
  return wants_gradient(first) || (wants_gradient(others) || ...);
}

}  // namespace musa
