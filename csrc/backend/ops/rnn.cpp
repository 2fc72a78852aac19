// Cells of LSTM and GRU. ATen picks the fused ones for an out-of-tree device and has no CPU kernel for them, so they
// are written as the CPU's own cell formula, operation by operation: values and gradients round as on cpu.
#include <ATen/ops/add.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/sigmoid.h>
#include <ATen/ops/sigmoid_backward.h>
#include <ATen/ops/sub.h>
#include <ATen/ops/sum.h>
#include <ATen/ops/tanh.h>
#include <ATen/ops/tanh_backward.h>
#include <ATen/ops/zeros_like.h>
#include <torch/library.h>

#include "backend/bridge/host_view.h"
#include "backend/ops/devices.h"

namespace musa {
namespace {

// Arithmetic per hidden unit, an activation counted as one operation: what the formulas below do.
constexpr double kLstmFlops = 21;
constexpr double kLstmBackwardFlops = 30;
constexpr double kGruFlops = 15;
constexpr double kGruBackwardFlops = 20;

void check_gates(
    const char* op, const at::Tensor& input_gates, const at::Tensor& hidden_gates, const at::Tensor& state,
    const at::Tensor& input_bias, const at::Tensor& hidden_bias, int64_t gate_count) {
  TORCH_CHECK(
      input_gates.dim() == 2 && state.dim() == 2 && input_gates.sizes() == hidden_gates.sizes() &&
          input_gates.size(0) == state.size(0) && input_gates.size(1) == gate_count * state.size(1),
      op, ": input_gates and hidden_gates must be (batch, ", gate_count,
      " * hidden) and the state (batch, hidden), got ", input_gates.sizes(), ", ", hidden_gates.sizes(), " and ",
      state.sizes());
  TORCH_CHECK(
      input_bias.defined() == hidden_bias.defined(), op,
      ": input_bias and hidden_bias must be given together or not at all");
  TORCH_CHECK(
      !input_bias.defined() ||
          (input_bias.numel() == input_gates.size(1) && hidden_bias.numel() == input_gates.size(1)),
      op, ": each bias needs ", input_gates.size(1), " elements, got ", input_bias.numel(), " and ",
      hidden_bias.defined() ? hidden_bias.numel() : 0);
}

at::Tensor with_bias(const at::Tensor& gates, const at::Tensor& bias) {
  return bias.defined() ? at::add(gates, bias) : gates;
}

/// workspace: (batch, 4 * hidden), the activated input, forget, cell and output gates.
std::tuple<at::Tensor, at::Tensor, at::Tensor> lstm_cell(
    const at::Tensor& input_gates, const at::Tensor& hidden_gates, const at::Tensor& cx,
    const std::optional<at::Tensor>& input_bias, const std::optional<at::Tensor>& hidden_bias) {
  constexpr const char* kOp = "aten::_thnn_fused_lstm_cell";
  const at::Tensor& bias_ih = or_undefined(input_bias);
  const at::Tensor& bias_hh = or_undefined(hidden_bias);
  check_gates(kOp, input_gates, hidden_gates, cx, bias_ih, bias_hh, 4);
  CardScope scope(
      common_device(
          kOp,
          {{"input_gates", input_gates},
           {"hidden_gates", hidden_gates},
           {"cx", cx},
           {"input_bias", bias_ih},
           {"hidden_bias", bias_hh}}),
      kOp);
  const at::Tensor old_cell = scope.view(cx);
  const at::Tensor workspace = at::add(
                                   with_bias(scope.view(hidden_gates), scope.view(bias_hh)),
                                   with_bias(scope.view(input_gates), scope.view(bias_ih)))
                                   .contiguous();
  const std::vector<at::Tensor> gates = workspace.chunk(4, 1);
  gates[0].sigmoid_();
  gates[1].sigmoid_();
  gates[2].tanh_();
  gates[3].sigmoid_();
  const at::Tensor cell = at::mul(gates[1], old_cell).add_(at::mul(gates[0], gates[2]));
  const at::Tensor hidden = at::mul(gates[3], at::tanh(cell));
  scope.set_cost(kLstmFlops * static_cast<double>(cx.numel()), cost_dtype(cx.scalar_type()));
  return {scope.result(hidden), scope.result(cell), scope.result(workspace)};
}

/// Returns the gradients of the gates (batch, 4 * hidden), of cx, and of either bias (undefined without bias).
std::tuple<at::Tensor, at::Tensor, at::Tensor> lstm_cell_backward(
    const std::optional<at::Tensor>& grad_hy, const std::optional<at::Tensor>& grad_cy, const at::Tensor& cx,
    const at::Tensor& cy, const at::Tensor& workspace, bool has_bias) {
  constexpr const char* kOp = "aten::_thnn_fused_lstm_cell_backward_impl";
  const at::Tensor& grad_hidden = or_undefined(grad_hy);
  const at::Tensor& grad_cell = or_undefined(grad_cy);
  if (!grad_hidden.defined() && !grad_cell.defined()) {
    return {};
  }
  CardScope scope(
      common_device(
          kOp, {{"grad_hy", grad_hidden}, {"grad_cy", grad_cell}, {"cx", cx}, {"cy", cy}, {"workspace", workspace}}),
      kOp);
  const std::vector<at::Tensor> gates = scope.view(workspace).chunk(4, 1);
  const at::Tensor old_cell = scope.view(cx);
  at::Tensor grad_new_cell;
  at::Tensor grad_output_gate;
  if (grad_hidden.defined()) {
    const at::Tensor grad = scope.view(grad_hidden);
    const at::Tensor cell = at::tanh(scope.view(cy));
    grad_output_gate = at::sigmoid_backward(at::mul(grad, cell), gates[3]);
    grad_new_cell = at::tanh_backward(at::mul(grad, gates[3]), cell);
    if (grad_cell.defined()) {
      grad_new_cell = at::add(grad_new_cell, scope.view(grad_cell));
    }
  } else {
    grad_new_cell = scope.view(grad_cell);
    grad_output_gate = at::zeros_like(gates[3]);
  }
  const at::Tensor grad_gates = at::cat(
      {at::sigmoid_backward(at::mul(grad_new_cell, gates[2]), gates[0]),
       at::sigmoid_backward(at::mul(grad_new_cell, old_cell), gates[1]),
       at::tanh_backward(at::mul(grad_new_cell, gates[0]), gates[2]), grad_output_gate},
      1);
  const at::Tensor grad_cx = at::mul(grad_new_cell, gates[1]);
  const at::Tensor grad_bias = has_bias ? at::sum(grad_gates, {0}) : at::Tensor();
  scope.set_cost(kLstmBackwardFlops * static_cast<double>(cx.numel()), cost_dtype(cx.scalar_type()));
  return {scope.result(grad_gates), scope.result(grad_cx), scope.result(grad_bias)};
}

/// workspace: (batch, 5 * hidden), the reset, update and new gates, hx - new gate, and the hidden part of the new gate
/// before the reset gate scales it.
std::tuple<at::Tensor, at::Tensor> gru_cell(
    const at::Tensor& input_gates, const at::Tensor& hidden_gates, const at::Tensor& hx,
    const std::optional<at::Tensor>& input_bias, const std::optional<at::Tensor>& hidden_bias) {
  constexpr const char* kOp = "aten::_thnn_fused_gru_cell";
  const at::Tensor& bias_ih = or_undefined(input_bias);
  const at::Tensor& bias_hh = or_undefined(hidden_bias);
  check_gates(kOp, input_gates, hidden_gates, hx, bias_ih, bias_hh, 3);
  CardScope scope(
      common_device(
          kOp,
          {{"input_gates", input_gates},
           {"hidden_gates", hidden_gates},
           {"hx", hx},
           {"input_bias", bias_ih},
           {"hidden_bias", bias_hh}}),
      kOp);
  const std::vector<at::Tensor> from_input = with_bias(scope.view(input_gates), scope.view(bias_ih)).chunk(3, 1);
  const std::vector<at::Tensor> from_hidden = with_bias(scope.view(hidden_gates), scope.view(bias_hh)).chunk(3, 1);
  const at::Tensor reset = at::add(from_hidden[0], from_input[0]).sigmoid_();
  const at::Tensor update = at::add(from_hidden[1], from_input[1]).sigmoid_();
  const at::Tensor candidate = at::add(from_input[2], at::mul(from_hidden[2], reset)).tanh_();
  const at::Tensor difference = at::sub(scope.view(hx), candidate);
  const at::Tensor hidden = at::mul(difference, update).add_(candidate);
  const at::Tensor workspace = at::cat({reset, update, candidate, difference, from_hidden[2]}, 1);
  scope.set_cost(kGruFlops * static_cast<double>(hx.numel()), cost_dtype(hx.scalar_type()));
  return {scope.result(hidden), scope.result(workspace)};
}

/// Returns the gradients of input_gates, hidden_gates, hx, input_bias and hidden_bias (undefined without bias).
std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor, at::Tensor> gru_cell_backward(
    const at::Tensor& grad_hy, const at::Tensor& workspace, bool has_bias) {
  constexpr const char* kOp = "aten::_thnn_fused_gru_cell_backward";
  CardScope scope(common_device(kOp, {{"grad_hy", grad_hy}, {"workspace", workspace}}), kOp);
  const at::Tensor grad = scope.view(grad_hy);
  const std::vector<at::Tensor> saved = scope.view(workspace).chunk(5, 1);
  const at::Tensor& reset = saved[0];
  const at::Tensor& update = saved[1];
  const at::Tensor& candidate = saved[2];
  const at::Tensor grad_hx = at::mul(grad, update);
  const at::Tensor grad_update = at::sigmoid_backward(at::mul(grad, saved[3]), update);
  const at::Tensor grad_candidate = at::tanh_backward(at::sub(grad, grad_hx), candidate);
  const at::Tensor grad_reset = at::sigmoid_backward(at::mul(grad_candidate, saved[4]), reset);
  const at::Tensor grad_input_gates = at::cat({grad_reset, grad_update, grad_candidate}, 1);
  const at::Tensor grad_hidden_gates = at::cat({grad_reset, grad_update, at::mul(grad_candidate, reset)}, 1);
  at::Tensor grad_input_bias;
  at::Tensor grad_hidden_bias;
  if (has_bias) {
    grad_input_bias = at::sum(grad_input_gates, {0});
    grad_hidden_bias = at::sum(grad_hidden_gates, {0});
  }
  scope.set_cost(kGruBackwardFlops * static_cast<double>(grad_hy.numel()), cost_dtype(grad_hy.scalar_type()));
  return {
      scope.result(grad_input_gates), scope.result(grad_hidden_gates), scope.result(grad_hx),
      scope.result(grad_input_bias), scope.result(grad_hidden_bias)};
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, library) {
  library.impl("_thnn_fused_lstm_cell", TORCH_FN(lstm_cell));
  library.impl("_thnn_fused_lstm_cell_backward_impl", TORCH_FN(lstm_cell_backward));
  library.impl("_thnn_fused_gru_cell", TORCH_FN(gru_cell));
  library.impl("_thnn_fused_gru_cell_backward", TORCH_FN(gru_cell_backward));
}

}  // namespace
}  // namespace musa
