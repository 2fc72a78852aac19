// Gradients of the fused attention operators, and their own derivatives.
#include <ATen/ExpandUtils.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/_scaled_dot_product_attention_math.h>
#include <ATen/ops/_scaled_dot_product_efficient_attention_backward.h>
#include <ATen/ops/_scaled_dot_product_flash_attention_backward.h>
#include <ATen/ops/_scaled_dot_product_flash_attention_for_cpu_backward.h>
#include <ATen/ops/constant_pad_nd.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/exp.h>
#include <ATen/ops/isneginf.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/ones.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/library.h>

#include <cmath>
#include <limits>

#include "backend/bridge/flops.h"
#include "backend/bridge/host_view.h"
#include "backend/native/attention.h"
#include "backend/native/kernels.h"
#include "backend/ops/attention_mask.h"
#include "backend/ops/devices.h"

namespace musa {
namespace {

constexpr const char* kFlashBackward = "aten::_scaled_dot_product_flash_attention_backward";
constexpr const char* kEfficientBackward = "aten::_scaled_dot_product_efficient_attention_backward";

using Gradients = std::tuple<at::Tensor, at::Tensor, at::Tensor>;
using BiasedGradients = std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor>;

at::Tensor widened(const at::Tensor& x, int64_t width) {
  return x.size(3) == width ? x : at::constant_pad_nd(x, {0, width - x.size(3)});
}

/// The gradient of x, less its padding, in x's layout: compiled code counts on that.
at::Tensor laid_out_like(const at::Tensor& x, const at::Tensor& gradient) {
  const at::Tensor own = gradient.narrow(3, 0, x.size(3));
  const at::Tensor like = at::empty_like(x);
  return own.strides() == like.strides() ? own : like.copy_(own);
}

/// On host tensors, by PyTorch's kernel for the CPU.
Gradients run_reference(
    const at::Tensor& grad_out, const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
    const std::optional<at::Tensor>& mask, const at::Tensor& out, const at::Tensor& logsumexp, bool is_causal,
    std::optional<double> scale) {
  const int64_t width = std::max(q.size(3), v.size(3));
  auto [grad_q, grad_k, grad_v] = at::_scaled_dot_product_flash_attention_for_cpu_backward(
      widened(grad_out, width), widened(q, width), widened(k, width), widened(v, width), widened(out, width),
      logsumexp.transpose(1, 2).contiguous().transpose(1, 2), 0.0, is_causal, number_mask(mask, q),
      scale.value_or(1.0 / std::sqrt(static_cast<double>(q.size(3)))));
  return {laid_out_like(q, grad_q), laid_out_like(k, grad_k), laid_out_like(v, grad_v)};
}

/// The gradient of an added mask, in its shape; by the formula, on host tensors.
at::Tensor mask_gradient(
    const at::Tensor& grad_out, const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const at::Tensor& mask,
    const at::Tensor& out, const at::Tensor& logsumexp, bool is_causal, std::optional<double> scale) {
  const auto wide = logsumexp.scalar_type();
  const int64_t group = q.size(1) / k.size(1);
  const at::Tensor keys = k.to(wide).repeat_interleave(group, 1);
  const at::Tensor values = v.to(wide).repeat_interleave(group, 1);
  const at::Tensor grad = grad_out.to(wide);
  at::Tensor scores =
      at::matmul(q.to(wide), keys.transpose(2, 3)) * scale.value_or(1.0 / std::sqrt(static_cast<double>(q.size(3)))) +
      mask.to(wide);
  if (is_causal) {
    const at::Tensor future = at::ones({q.size(2), k.size(2)}, q.options().dtype(at::kBool)).triu(1);
    scores = scores.masked_fill(future, -std::numeric_limits<double>::infinity());
  }
  const at::Tensor sum = logsumexp.unsqueeze(3);
  const at::Tensor weights = at::exp(scores - sum).masked_fill(at::isneginf(sum), 0.0);
  const at::Tensor delta = (grad * out.to(wide)).sum(3, /*keepdim=*/true);
  const at::Tensor slopes = weights * (at::matmul(grad, values.transpose(2, 3)) - delta);
  return at::sum_to(slopes, mask.sizes()).to(mask.scalar_type());
}

BiasedGradients run_backward(
    const char* op, const at::Tensor& grad_out, const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
    const std::optional<at::Tensor>& mask, const at::Tensor& out, const at::Tensor& logsumexp, double dropout_p,
    bool is_causal, std::optional<double> scale, bool wants_mask) {
  TORCH_CHECK_NOT_IMPLEMENTED(dropout_p == 0, op, " on musa has no dropout, got dropout_p=", dropout_p);
  CardScope scope(
      common_device(
          op,
          {{"grad_out", grad_out},
           {"query", query},
           {"key", key},
           {"value", value},
           {"attn_bias", or_undefined(mask)},
           {"out", out},
           {"logsumexp", logsumexp}}),
      op);
  const at::Tensor q = scope.view(query);
  const at::Tensor k = scope.view(key);
  const at::Tensor v = scope.view(value);
  const at::Tensor lse = scope.view(logsumexp).narrow(2, 0, q.size(2));
  const at::Tensor grad = scope.view(grad_out);
  const at::Tensor o = scope.view(out);
  const std::optional<at::Tensor> bias = scope.view(mask);
  Gradients found;
  if (attention_fits(q, k, v, bias) && grad.scalar_type() == q.scalar_type() && lse.scalar_type() == at::kFloat &&
      native_enabled(op)) {
    AttentionGradients ours =
        run_attention_backward(q, k, v, bias, {.right = is_causal ? 0 : -1}, scale, o, lse, grad, at::Tensor());
    found = {std::move(ours.query), std::move(ours.key), std::move(ours.value)};
  } else {
    found = run_reference(grad, q, k, v, bias, o, lse, is_causal, scale);
  }
  at::Tensor grad_mask;
  if (wants_mask) {
    grad_mask = mask_gradient(grad, q, k, v, *bias, o, lse, is_causal, scale);
  }
  scope.set_cost(
      attention_backward_flops(q.size(0), q.size(1), q.size(2), k.size(2), q.size(3), v.size(3), is_causal),
      cost_dtype(q.scalar_type()));
  auto& [grad_q, grad_k, grad_v] = found;
  return {
      scope.result(grad_q), scope.result(grad_k), scope.result(grad_v),
      wants_mask ? scope.result(grad_mask) : at::Tensor()};
}

Gradients flash_backward(
    const at::Tensor& grad_out, const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
    const at::Tensor& out, const at::Tensor& logsumexp, const at::Tensor& /*cum_seq_q*/,
    const at::Tensor& /*cum_seq_k*/, int64_t /*max_q*/, int64_t /*max_k*/, double dropout_p, bool is_causal,
    const at::Tensor& /*philox_seed*/, const at::Tensor& /*philox_offset*/, std::optional<double> scale) {
  auto [grad_q, grad_k, grad_v, none] = run_backward(
      kFlashBackward, grad_out, query, key, value, std::nullopt, out, logsumexp, dropout_p, is_causal, scale, false);
  return {std::move(grad_q), std::move(grad_k), std::move(grad_v)};
}

BiasedGradients efficient_backward(
    const at::Tensor& grad_out, const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
    const at::Tensor& attn_bias, const at::Tensor& out, const at::Tensor& logsumexp, const at::Tensor& /*philox_seed*/,
    const at::Tensor& /*philox_offset*/, double dropout_p, std::array<bool, 4> grad_input_mask, bool is_causal,
    std::optional<double> scale) {
  if (!grad_out.defined()) {
    return {};
  }
  const std::optional<at::Tensor> mask = attn_bias.defined() ? std::make_optional(attn_bias) : std::nullopt;
  return run_backward(
      kEfficientBackward, grad_out, query, key, value, mask, out, logsumexp, dropout_p, is_causal, scale,
      grad_input_mask[3] && attn_bias.defined());
}

std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor> fused_attention_backward(
    const at::Tensor& grad_out, const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
    const at::Tensor& attn_bias, std::array<bool, 4> grad_input_mask, const at::Tensor& out,
    const at::Tensor& logsumexp, const at::Tensor& /*cum_seq_q*/, const at::Tensor& /*cum_seq_k*/, int64_t /*max_q*/,
    int64_t /*max_k*/, double dropout_p, bool is_causal, const at::Tensor& /*philox_seed*/,
    const at::Tensor& /*philox_offset*/, std::optional<double> scale) {
  TORCH_CHECK_NOT_IMPLEMENTED(
      !(grad_input_mask[3] && attn_bias.defined()),
      "_scaled_dot_product_fused_attention_overrideable on musa has no gradient of attn_bias; "
      "use torch.nn.functional.scaled_dot_product_attention, which has");
  const std::optional<at::Tensor> mask = attn_bias.defined() ? std::make_optional(attn_bias) : std::nullopt;
  auto [grad_query, grad_key, grad_value] = at::_scaled_dot_product_flash_attention_for_cpu_backward(
      grad_out, query, key, value, out, logsumexp, dropout_p, is_causal, mask, scale);
  return {std::move(grad_query), std::move(grad_key), std::move(grad_value), at::Tensor()};
}

/// Gradients that can be differentiated again: those of the math path.
BiasedGradients differentiable_gradients(
    const at::Tensor& grad_out, const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
    const at::Tensor& mask, double dropout_p, bool is_causal, std::optional<double> scale) {
  // Aliases, as one tensor may be given for several arguments.
  const at::Tensor q = query.view_as(query);
  const at::Tensor k = key.view_as(key);
  const at::Tensor v = value.view_as(value);
  const at::Tensor bias = mask.defined() ? mask.view_as(mask) : mask;
  const at::Tensor out = std::get<0>(at::_scaled_dot_product_attention_math(
      q, k, v, number_mask(bias.defined() ? std::make_optional(bias) : std::nullopt, q), dropout_p, is_causal,
      std::nullopt, scale,
      /*enable_gqa=*/q.sym_size(1) != k.sym_size(1)));
  torch::autograd::variable_list inputs;
  for (const at::Tensor* input : {&q, &k, &v, &bias}) {
    if (input->requires_grad()) {
      inputs.push_back(*input);
    }
  }
  const torch::autograd::variable_list found = torch::autograd::grad(
      {out}, inputs, {grad_out}, /*retain_graph=*/true, /*create_graph=*/true, /*allow_unused=*/false);
  size_t next = 0;
  const auto take = [&](const at::Tensor& input) { return input.requires_grad() ? found[next++] : at::Tensor(); };
  at::Tensor grad_q = take(q);
  at::Tensor grad_k = take(k);
  at::Tensor grad_v = take(v);
  at::Tensor grad_mask = take(bias);
  return {std::move(grad_q), std::move(grad_k), std::move(grad_v), std::move(grad_mask)};
}

bool differentiates(
    const at::Tensor& grad_out, const at::Tensor& query, const at::Tensor& key, const at::Tensor& value) {
  return at::GradMode::is_enabled() && grad_out.defined() &&
      (query.requires_grad() || key.requires_grad() || value.requires_grad());
}

Gradients flash_backward_autograd(
    const at::Tensor& grad_out, const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
    const at::Tensor& out, const at::Tensor& logsumexp, const at::Tensor& cum_seq_q, const at::Tensor& cum_seq_k,
    c10::SymInt max_q, c10::SymInt max_k, double dropout_p, bool is_causal, const at::Tensor& philox_seed,
    const at::Tensor& philox_offset, std::optional<double> scale) {
  if (differentiates(grad_out, query, key, value)) {
    auto [grad_q, grad_k, grad_v, none] =
        differentiable_gradients(grad_out, query, key, value, at::Tensor(), dropout_p, is_causal, scale);
    return {std::move(grad_q), std::move(grad_k), std::move(grad_v)};
  }
  const at::AutoDispatchBelowADInplaceOrView below;
  return at::_scaled_dot_product_flash_attention_backward_symint(
      grad_out, query, key, value, out, logsumexp, cum_seq_q, cum_seq_k, std::move(max_q), std::move(max_k), dropout_p,
      is_causal, philox_seed, philox_offset, scale);
}

BiasedGradients efficient_backward_autograd(
    const at::Tensor& grad_out, const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
    const at::Tensor& attn_bias, const at::Tensor& out, const at::Tensor& logsumexp, const at::Tensor& philox_seed,
    const at::Tensor& philox_offset, double dropout_p, std::array<bool, 4> grad_input_mask, bool is_causal,
    std::optional<double> scale) {
  if (differentiates(grad_out, query, key, value) ||
      (at::GradMode::is_enabled() && grad_out.defined() && attn_bias.defined() && attn_bias.requires_grad())) {
    return differentiable_gradients(grad_out, query, key, value, attn_bias, dropout_p, is_causal, scale);
  }
  const at::AutoDispatchBelowADInplaceOrView below;
  return at::_scaled_dot_product_efficient_attention_backward(
      grad_out, query, key, value, attn_bias, out, logsumexp, philox_seed, philox_offset, dropout_p, grad_input_mask,
      is_causal, scale);
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, library) {
  library.impl("_scaled_dot_product_flash_attention_backward", TORCH_FN(flash_backward));
  library.impl("_scaled_dot_product_efficient_attention_backward", TORCH_FN(efficient_backward));
  library.impl("_scaled_dot_product_fused_attention_overrideable_backward", TORCH_FN(fused_attention_backward));
}
TORCH_LIBRARY_IMPL(aten, AutogradPrivateUse1, library) {
  library.impl("_scaled_dot_product_flash_attention_backward", TORCH_FN(flash_backward_autograd));
  library.impl("_scaled_dot_product_efficient_attention_backward", TORCH_FN(efficient_backward_autograd));
}

}  // namespace
}  // namespace musa
