// Scaled dot product attention: which kernel it takes, and the fused operators. As on CUDA, attention without a mask
// reaches aten::_scaled_dot_product_flash_attention and with one _scaled_dot_product_efficient_attention, so that what
// is written for these operators (context parallelism above all) works here. torch sends an unknown device elsewhere:
// hence kernels for aten::scaled_dot_product_attention itself.
#include <ATen/SDPBackend.h>
#include <ATen/native/transformers/attention.h>
#include <ATen/native/transformers/sdp_utils_cpp.h>
#include <ATen/ops/_fused_sdp_choice_native.h>
#include <ATen/ops/_scaled_dot_product_attention_math.h>
#include <ATen/ops/_scaled_dot_product_efficient_attention.h>
#include <ATen/ops/_scaled_dot_product_flash_attention.h>
#include <ATen/ops/_scaled_dot_product_flash_attention_for_cpu.h>
#include <ATen/ops/constant_pad_nd.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/scaled_dot_product_attention_native.h>
#include <ATen/ops/zeros.h>
#include <torch/library.h>

#include <utility>

#include "backend/bridge/flops.h"
#include "backend/bridge/host_view.h"
#include "backend/coverage/peer.h"
#include "backend/native/attention.h"
#include "backend/native/kernels.h"
#include "backend/ops/attention_mask.h"
#include "backend/ops/devices.h"

namespace musa {
namespace {

constexpr const char* kFlash = "aten::_scaled_dot_product_flash_attention";
constexpr const char* kEfficient = "aten::_scaled_dot_product_efficient_attention";

/// What both fused kernels ask for, from sizes, strides and dtypes only: arguments may be functorch or fake wrappers.
bool fuses(const sdp::sdp_params& params) {
  const at::Tensor& query = params.query;
  const c10::ScalarType type = query.scalar_type();
  if (!sdp::has_only_dense_inputs(params) || !sdp::check_tensor_shapes(params, false)) {
    return false;
  }
  const bool types = (type == at::kFloat || type == at::kDouble || type == at::kBFloat16 || type == at::kHalf) &&
      params.key.scalar_type() == type && params.value.scalar_type() == type;
  if (!types || params.key.device() != query.device() || params.value.device() != query.device()) {
    return false;
  }
  const auto dim = query.sym_size(-1);
  const bool rows = query.sym_stride(-1) == 1 && params.key.sym_stride(-1) == 1 && params.value.sym_stride(-1) == 1;
  return rows && sdp::check_for_dropout(params, false) &&
      sdp::check_batch_size_and_num_heads_dense</*supports_gqa=*/true>(params, false) &&
      sdp::check_nonzero_sequence_lengths_dense(params, false) && dim == params.key.sym_size(-1) && dim > 0 &&
      params.value.sym_size(-1) > 0 && params.key.sym_size(-2) == params.value.sym_size(-2) &&
      peer_fuses_attention(dim.maybe_as_int().value_or(0), params.value.sym_size(-1).maybe_as_int().value_or(0));
}

bool fuses_mask(const sdp::sdp_params& params) {
  if (!has_mask(params.attn_mask)) {
    return true;
  }
  const at::Tensor& mask = *params.attn_mask;
  return !mask.is_nested() && !params.is_causal && mask.device() == params.query.device() &&
      (mask.scalar_type() == at::kBool || mask.scalar_type() == params.query.scalar_type()) &&
      sdp::check_attn_mask_shape(params, false);
}

int64_t choose_attention(
    const at::Tensor& query, const at::Tensor& key, const at::Tensor& value, const std::optional<at::Tensor>& attn_mask,
    double dropout_p, bool is_causal, std::optional<double> /*scale*/, bool enable_gqa) {
  const sdp::sdp_params params{query, key, value, attn_mask, dropout_p, is_causal, enable_gqa};
  const at::Context& context = at::globalContext();
  if ((context.userEnabledFlashSDP() || context.userEnabledMemEfficientSDP()) && fuses(params)) {
    if (context.userEnabledFlashSDP() && !has_mask(attn_mask) && query.sym_size(-1) == value.sym_size(-1)) {
      return static_cast<int64_t>(at::SDPBackend::flash_attention);
    }
    // PyTorch's CPU device computes values of another width by the formula, which is the reference then.
    const bool has_kernel = query.sym_size(-1) == value.sym_size(-1) || native_enabled(kEfficient);
    if (has_kernel && context.userEnabledMemEfficientSDP() && fuses_mask(params)) {
      return static_cast<int64_t>(at::SDPBackend::efficient_attention);
    }
  }
  return static_cast<int64_t>(context.userEnabledMathSDP() ? at::SDPBackend::math : at::SDPBackend::error);
}

bool has_tangent(const at::Tensor& tensor) { return tensor.defined() && tensor._fw_grad(/*level=*/0).defined(); }

at::Tensor scaled_dot_product_attention(
    const at::Tensor& query, const at::Tensor& key, const at::Tensor& value, const std::optional<at::Tensor>& attn_mask,
    double dropout_p, bool is_causal, std::optional<double> scale, bool enable_gqa) {
  const auto choice = static_cast<at::SDPBackend>(
      choose_attention(query, key, value, attn_mask, dropout_p, is_causal, scale, enable_gqa));
  const bool flash = choice == at::SDPBackend::flash_attention;
  if (!flash && choice != at::SDPBackend::efficient_attention) {
    // The math path, and all refusals.
    return at::native::scaled_dot_product_attention(
        query, key, value, attn_mask, dropout_p, is_causal, scale, enable_gqa);
  }
  if (has_tangent(query) || has_tangent(key) || has_tangent(value)) {
    return std::get<0>(at::_scaled_dot_product_attention_math(
        query, key, value, number_mask(attn_mask, query), dropout_p, is_causal, std::nullopt, scale, enable_gqa));
  }
  if (flash) {
    return std::get<0>(at::_scaled_dot_product_flash_attention(query, key, value, 0.0, is_causal, false, scale));
  }
  const bool differentiates =
      at::GradMode::is_enabled() && (query.requires_grad() || key.requires_grad() || value.requires_grad());
  return std::get<0>(
      at::_scaled_dot_product_efficient_attention(query, key, value, attn_mask, differentiates, 0.0, is_causal, scale));
}

/// An operator's cost, whichever of its kernels runs.
void set_attention_cost(
    CardScope& scope, bool backward, const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, bool is_causal) {
  const auto count = backward ? attention_backward_flops : attention_flops;
  scope.set_cost(
      count(q.size(0), q.size(1), q.size(2), k.size(2), q.size(3), v.size(3), is_causal), cost_dtype(q.scalar_type()));
}

void refuse_dropout(const char* op, double dropout_p) {
  TORCH_CHECK_NOT_IMPLEMENTED(
      dropout_p == 0, op, " on musa has no dropout, got dropout_p=", dropout_p,
      "; use torch.nn.functional.scaled_dot_product_attention, which has");
}

void check_sizes(const char* op, const at::Tensor& q, const at::Tensor& k, const at::Tensor& v) {
  TORCH_CHECK(
      q.dim() == 4 && k.dim() == 4 && v.dim() == 4 && k.size(0) == q.size(0) && v.size(0) == q.size(0) &&
          k.size(1) > 0 && q.size(1) % k.size(1) == 0 && v.size(1) == k.size(1) && k.size(2) == v.size(2) &&
          k.size(3) == q.size(3),
      op,
      " takes query [batch, heads, queries, dim], key [batch, kv heads, keys, dim] and value [batch, kv heads, keys, "
      "value dim] with kv heads that divide heads, got ",
      q.sizes(), ", ", k.sizes(), " and ", v.sizes());
}

/// PyTorch's kernel takes values as wide as keys: the narrower ones get zeros.
at::Tensor widened(const at::Tensor& x, int64_t width) {
  return x.size(3) == width ? x : at::constant_pad_nd(x, {0, width - x.size(3)});
}

std::optional<double> scale_or_default(std::optional<double> scale, const at::Tensor& query) {
  return scale.has_value() ? scale : 1.0 / std::sqrt(static_cast<double>(query.size(3)));
}

/// The reference: PyTorch's kernel for the CPU, which differs in layouts only.
void run_reference(
    const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const std::optional<at::Tensor>& mask,
    bool is_causal, std::optional<double> scale, const at::Tensor& out, const at::Tensor& logsumexp) {
  const int64_t width = std::max(q.size(3), v.size(3));
  auto [wide, lse] = at::_scaled_dot_product_flash_attention_for_cpu(
      widened(q, width), widened(k, width), widened(v, width), 0.0, is_causal, number_mask(mask, q),
      scale_or_default(scale, q));
  out.copy_(wide.narrow(3, 0, v.size(3)));
  if (logsumexp.defined()) {
    logsumexp.copy_(lse);
  }
}

void run_forward(
    const char* op, const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
    const std::optional<at::Tensor>& mask, bool is_causal, std::optional<double> scale, const at::Tensor& out,
    const at::Tensor& logsumexp) {
  if (attention_fits(q, k, v, mask) && native_enabled(op)) {
    run_attention(q, k, v, mask, {.right = is_causal ? 0 : -1}, scale, out, logsumexp);
  } else {
    run_reference(q, k, v, mask, is_causal, scale, out, logsumexp);
  }
}

using FlashResult = std::tuple<
    at::Tensor, at::Tensor, at::Tensor, at::Tensor, c10::SymInt, c10::SymInt, at::Tensor, at::Tensor, at::Tensor>;

FlashResult flash_attention(
    const at::Tensor& query, const at::Tensor& key, const at::Tensor& value, double dropout_p, bool is_causal,
    bool /*return_debug_mask*/, std::optional<double> scale) {
  refuse_dropout("_scaled_dot_product_flash_attention", dropout_p);
  check_sizes("_scaled_dot_product_flash_attention", query, key, value);
  TORCH_CHECK(
      value.size(3) == query.size(3), "_scaled_dot_product_flash_attention takes values as wide as keys, got ",
      value.sizes(), " and ", key.sizes(), "; _scaled_dot_product_efficient_attention takes others");
  CardScope scope(common_device(kFlash, {{"query", query}, {"key", key}, {"value", value}}), kFlash);
  const at::Tensor q = scope.view(query);
  const at::Tensor k = scope.view(key);
  const at::Tensor v = scope.view(value);
  const at::Tensor out = empty_rows_like(q);
  const bool is_double = q.scalar_type() == at::kDouble;
  const at::Tensor logsumexp =
      at::empty({q.size(0), q.size(1), q.size(2)}, q.options().dtype(is_double ? at::kDouble : at::kFloat));
  run_forward(kFlash, q, k, v, std::nullopt, is_causal, scale, out, logsumexp);
  set_attention_cost(scope, /*backward=*/false, q, k, v, is_causal);
  // Without dropout nobody reads the state of the generator.
  const auto state = q.options().dtype(at::kUInt64);
  return {
      scope.result(out),
      scope.result(logsumexp),
      at::Tensor(),
      at::Tensor(),
      c10::SymInt(q.size(2)),
      c10::SymInt(k.size(2)),
      scope.result(at::zeros({2}, state)),
      scope.result(at::zeros({}, state)),
      scope.result(at::empty({0}, q.options()))};
}

int64_t padded_queries(int64_t queries) { return (queries + 31) / 32 * 32; }

std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor> efficient_attention(
    const at::Tensor& query, const at::Tensor& key, const at::Tensor& value, const std::optional<at::Tensor>& attn_bias,
    bool compute_log_sumexp, double dropout_p, bool is_causal, std::optional<double> scale) {
  refuse_dropout("_scaled_dot_product_efficient_attention", dropout_p);
  check_sizes("_scaled_dot_product_efficient_attention", query, key, value);
  CardScope scope(
      common_device(
          kEfficient, {{"query", query}, {"key", key}, {"value", value}, {"attn_bias", or_undefined(attn_bias)}}),
      kEfficient);
  const at::Tensor q = scope.view(query);
  const at::Tensor k = scope.view(key);
  const at::Tensor v = scope.view(value);
  const at::Tensor out = at::empty({q.size(0), q.size(2), q.size(1), v.size(3)}, q.options()).transpose(1, 2);
  at::Tensor logsumexp;
  const auto options = q.options().dtype(q.scalar_type() == at::kDouble ? at::kDouble : at::kFloat);
  if (compute_log_sumexp) {
    logsumexp = at::full({q.size(0), q.size(1), padded_queries(q.size(2))}, INFINITY, options);
  }
  run_forward(
      kEfficient, q, k, v, scope.view(attn_bias), is_causal, scale, out,
      compute_log_sumexp ? logsumexp.narrow(2, 0, q.size(2)) : at::Tensor());
  set_attention_cost(scope, /*backward=*/false, q, k, v, is_causal);
  if (!compute_log_sumexp) {
    logsumexp = at::empty({q.size(0), q.size(1), 0}, options);
  }
  const auto state = q.options().dtype(at::kLong);
  return {
      scope.result(out), scope.result(logsumexp), scope.result(at::zeros({}, state)),
      scope.result(at::zeros({}, state))};
}

using OverrideableResult = FlashResult;

/// For callers that ask for torch's device-neutral fused attention by name; SDPA itself never picks it here.
OverrideableResult fused_attention(
    const at::Tensor& query, const at::Tensor& key, const at::Tensor& value, const std::optional<at::Tensor>& attn_bias,
    double dropout_p, bool is_causal, bool /*return_debug_mask*/, std::optional<double> scale) {
  refuse_dropout("_scaled_dot_product_fused_attention_overrideable", dropout_p);
  auto [output, logsumexp] =
      at::_scaled_dot_product_flash_attention_for_cpu(query, key, value, dropout_p, is_causal, attn_bias, scale);
  const auto position = query.options().dtype(c10::kLong);
  return {
      std::move(output),       std::move(logsumexp),    at::Tensor(), at::Tensor(), query.sym_size(2), key.sym_size(2),
      at::empty({}, position), at::empty({}, position), at::Tensor()};
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, library) {
  library.impl("_fused_sdp_choice", TORCH_FN(choose_attention));
  library.impl("scaled_dot_product_attention", TORCH_FN(scaled_dot_product_attention));  // in inference mode
  library.impl("_scaled_dot_product_flash_attention", TORCH_FN(flash_attention));
  library.impl("_scaled_dot_product_efficient_attention", TORCH_FN(efficient_attention));
  library.impl("_scaled_dot_product_fused_attention_overrideable", TORCH_FN(fused_attention));
}
TORCH_LIBRARY_IMPL(aten, AutogradPrivateUse1, library) {
  library.impl("scaled_dot_product_attention", TORCH_FN(scaled_dot_product_attention));
}

}  // namespace
}  // namespace musa

namespace at::native {
// SDPA asks this stub, not the operator.
REGISTER_PRIVATEUSE1_DISPATCH(_fused_sdp_choice_stub, &musa::choose_attention)
}  // namespace at::native
