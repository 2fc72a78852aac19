// Gradients of operators of our own: when one is asked for, the operator is computed as the differentiable ATen
// operators it consists of, whose derivatives (also double and forward ones) PyTorch knows; else by its own kernel.
#pragma once

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/grad_mode.h>
#include <torch/library.h>

#include <optional>

namespace musa {

inline bool wants_derivative(const at::Tensor& tensor) {
  return tensor.defined() &&
      ((at::GradMode::is_enabled() && tensor.requires_grad()) || tensor._fw_grad(/*level=*/0).defined());
}
inline bool wants_derivative(const std::optional<at::Tensor>& tensor) {
  return tensor.has_value() && wants_derivative(*tensor);
}

/// An Autograd kernel for the operator `kName`: `kFormula` when a derivative of one of the tensors is wanted.
template <const char* kName, auto kFormula>
struct Differentiable;
template <const char* kName, class Result, class... Arguments, Result (*kFormula)(Arguments...)>
struct Differentiable<kName, kFormula> {
  static Result call(Arguments... arguments) {
    if ((is_wanted(arguments) || ...)) {
      return kFormula(arguments...);
    }
    static const auto op = c10::Dispatcher::singleton().findSchemaOrThrow(kName, "").typed<Result(Arguments...)>();
    const at::AutoDispatchBelowADInplaceOrView below;
    return op.call(arguments...);
  }

 private:
  template <class T>
  static bool is_wanted(const T& argument) {
    if constexpr (requires { wants_derivative(argument); }) {
      return wants_derivative(argument);
    } else {
      return false;
    }
  }
};

}  // namespace musa
