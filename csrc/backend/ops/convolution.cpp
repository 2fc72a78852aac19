// Convolutions: torch hands those of an out-of-tree device to the overrideable pair, which nothing implements.
#include <ATen/ops/convolution.h>
#include <ATen/ops/convolution_backward.h>
#include <torch/library.h>

#include "backend/bridge/flops.h"
#include "backend/bridge/host_view.h"
#include "backend/bridge/strict.h"
#include "backend/bridge/tf32.h"
#include "backend/ops/devices.h"

namespace musa {
namespace {

at::Tensor convolution(
    const at::Tensor& input, const at::Tensor& weight, const std::optional<at::Tensor>& bias, c10::IntArrayRef stride,
    c10::IntArrayRef padding, c10::IntArrayRef dilation, bool transposed, c10::IntArrayRef output_padding,
    int64_t groups) {
  constexpr const char* kOp = "aten::convolution_overrideable";
  CardScope scope(common_device(kOp, {{"input", input}, {"weight", weight}, {"bias", or_undefined(bias)}}), kOp);
  static const uint64_t accepted = accepted_dtypes("conv2d");
  check_accepted(accepted, input.scalar_type(), "convolution");
  const at::Tensor output = at::convolution(
      scope.view(input), scope.view(weight), scope.view(bias), stride, padding, dilation, transposed, output_padding,
      groups);
  scope.set_cost(
      convolution_flops(input.sizes(), weight.sizes(), output.sizes(), transposed),
      convolution_class(cost_dtype(input.scalar_type())));
  return scope.result(output);
}

std::tuple<at::Tensor, at::Tensor, at::Tensor> convolution_backward(
    const at::Tensor& grad_output, const at::Tensor& input, const at::Tensor& weight, c10::IntArrayRef stride,
    c10::IntArrayRef padding, c10::IntArrayRef dilation, bool transposed, c10::IntArrayRef output_padding,
    int64_t groups, std::array<bool, 3> output_mask) {
  constexpr const char* kOp = "aten::convolution_backward_overrideable";
  CardScope scope(common_device(kOp, {{"grad_output", grad_output}, {"input", input}, {"weight", weight}}), kOp);
  const int64_t output_channels = grad_output.size(1);
  const c10::OptionalArrayRef<int64_t> bias_sizes =
      output_mask[2] ? c10::OptionalArrayRef<int64_t>(output_channels) : std::nullopt;
  const auto [grad_input, grad_weight, grad_bias] = at::convolution_backward(
      scope.view(grad_output), scope.view(input), scope.view(weight), bias_sizes, stride, padding, dilation, transposed,
      output_padding, groups, output_mask);
  const int products = static_cast<int>(output_mask[0]) + static_cast<int>(output_mask[1]);
  scope.set_cost(
      products * convolution_flops(input.sizes(), weight.sizes(), grad_output.sizes(), transposed),
      convolution_class(cost_dtype(input.scalar_type())));
  return {scope.result(grad_input), scope.result(grad_weight), scope.result(grad_bias)};
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, library) {
  library.impl("convolution_overrideable", TORCH_FN(convolution));
  library.impl("convolution_backward_overrideable", TORCH_FN(convolution_backward));
}

}  // namespace
}  // namespace musa
