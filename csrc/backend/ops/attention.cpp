// Scaled dot product attention: the choice of the kernel, and torch's device-neutral fused operator. The kernel behind
// both is the CPU's flash attention, which comes by the bridge.
#include <ATen/SDPBackend.h>
#include <ATen/native/transformers/attention.h>
#include <ATen/ops/_fused_sdp_choice_native.h>
#include <ATen/ops/_scaled_dot_product_flash_attention_for_cpu.h>
#include <ATen/ops/_scaled_dot_product_flash_attention_for_cpu_backward.h>
#include <ATen/ops/empty.h>
#include <torch/library.h>

#include "backend/coverage/peer.h"

namespace musa {
namespace {

/// The CPU's decision, from sizes, strides and dtypes only: the arguments may be functorch or fake wrappers.
int64_t choose_attention(
    const at::Tensor& query, const at::Tensor& key, const at::Tensor& value, const std::optional<at::Tensor>& attn_mask,
    double dropout_p, bool is_causal, std::optional<double> scale, bool enable_gqa) {
  if (!peer_fuses_attention(
          query.sym_size(-1).maybe_as_int().value_or(0), value.sym_size(-1).maybe_as_int().value_or(0))) {
    return static_cast<int64_t>(at::SDPBackend::math);
  }
  std::optional<at::Tensor> mask = attn_mask;
  // Off the CPU torch asks for a mask whose last stride is 1; the kernel is the CPU's, which takes any. A meta tensor
  // of the mask's sizes asks the question without the stride.
  if (mask.has_value() && mask->defined() && !mask->is_nested() && mask->dim() > 0 && !mask->requires_grad() &&
      mask->sym_stride(-1) != 1) {
    mask = at::empty_symint(mask->sym_sizes(), mask->options().device(c10::kMeta).requires_grad(false));
  }
  return at::native::_fused_sdp_choice_cpp(query, key, value, mask, dropout_p, is_causal, scale, enable_gqa);
}

using OverrideableResult = std::tuple<
    at::Tensor, at::Tensor, at::Tensor, at::Tensor, c10::SymInt, c10::SymInt, at::Tensor, at::Tensor, at::Tensor>;

/// For callers that ask for torch's device-neutral fused attention by name; SDPA itself never picks it here.
OverrideableResult fused_attention(
    const at::Tensor& query, const at::Tensor& key, const at::Tensor& value, const std::optional<at::Tensor>& attn_bias,
    double dropout_p, bool is_causal, bool /*return_debug_mask*/, std::optional<double> scale) {
  TORCH_CHECK_NOT_IMPLEMENTED(
      dropout_p == 0,
      "_scaled_dot_product_fused_attention_overrideable on musa has no dropout, got dropout_p=", dropout_p,
      "; use torch.nn.functional.scaled_dot_product_attention, which has");
  auto [output, logsumexp] =
      at::_scaled_dot_product_flash_attention_for_cpu(query, key, value, dropout_p, is_causal, attn_bias, scale);
  const auto position = query.options().dtype(c10::kLong);
  return {
      std::move(output),       std::move(logsumexp),    at::Tensor(), at::Tensor(), query.sym_size(2), key.sym_size(2),
      at::empty({}, position), at::empty({}, position), at::Tensor()};
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

TORCH_LIBRARY_IMPL(aten, PrivateUse1, library) {
  library.impl("_fused_sdp_choice", TORCH_FN(choose_attention));
  library.impl("_scaled_dot_product_fused_attention_overrideable", TORCH_FN(fused_attention));
  library.impl("_scaled_dot_product_fused_attention_overrideable_backward", TORCH_FN(fused_attention_backward));
}

}  // namespace
}  // namespace musa

namespace at::native {
// SDPA asks this stub, not the operator.
REGISTER_PRIVATEUSE1_DISPATCH(_fused_sdp_choice_stub, &musa::choose_attention)
}  // namespace at::native
