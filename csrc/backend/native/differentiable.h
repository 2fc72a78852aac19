// Gradients of operators of our own: when one is asked for, the operator is computed as the differentiable ATen
// operators it consists of, whose derivatives (also double and forward ones) PyTorch knows; else by its own kernel.
#pragma once

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/grad_mode.h>
#include <torch/library.h>

#include <optional>
#include <string_view>

namespace musa {

inline bool wants_derivative(const at::Tensor& tensor) {
  return tensor.defined() &&
      ((at::GradMode::is_enabled() && tensor.requires_grad()) || tensor._fw_grad(/*level=*/0).defined());
}
inline bool wants_derivative(const std::optional<at::Tensor>& tensor) {
  return tensor.has_value() && wants_derivative(*tensor);
}

template <class T>
bool argument_wants_derivative(const T& argument) {
  if constexpr (requires { wants_derivative(argument); }) {
    return wants_derivative(argument);
  } else {
    return false;
  }
}

/// Calls the operator `kName` below autograd.
template <const char* kName, class Result, class... Arguments>
Result call_below_autograd(Arguments... arguments) {
  static const auto op = c10::Dispatcher::singleton().findSchemaOrThrow(kName, "").typed<Result(Arguments...)>();
  const at::AutoDispatchBelowADInplaceOrView below;
  return op.call(arguments...);
}

/// An Autograd kernel for the operator `kName`: `kFormula` when a derivative of one of the tensors is wanted.
template <const char* kName, auto kFormula>
struct Differentiable;
template <const char* kName, class Result, class... Arguments, Result (*kFormula)(Arguments...)>
struct Differentiable<kName, kFormula> {
  static Result call(Arguments... arguments) {
    if ((argument_wants_derivative(arguments) || ...)) {
      return kFormula(arguments...);
    }
    return call_below_autograd<kName, Result, Arguments...>(arguments...);
  }
};

/// An Autograd kernel for the operator `kName` that has no derivative and says so where one is wanted. `kKernel`, any
/// kernel of it, tells the arguments.
template <const char* kName, auto kKernel>
struct NotDifferentiable;
template <const char* kName, class Result, class... Arguments, Result (*kKernel)(Arguments...)>
struct NotDifferentiable<kName, kKernel> {
  static Result call(Arguments... arguments) {
    TORCH_CHECK_NOT_IMPLEMENTED(
        !(argument_wants_derivative(arguments) || ...), std::string_view(kName).substr(sizeof("musa::") - 1),
        " has no derivative: call it under torch.no_grad(), or with tensors that require none");
    return call_below_autograd<kName, Result, Arguments...>(arguments...);
  }
};

}  // namespace musa
