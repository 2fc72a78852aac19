// Attention: PyTorch's flash attention for the CPU, and what the device's own attention operators run.
#include "backend/native/attention.h"

#include <ATen/ops/_scaled_dot_product_flash_attention_for_cpu.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>

#include <cmath>

#include "backend/native/attention_variants.h"
#include "backend/native/kernels.h"
#include "backend/native/tensors.h"
#include "mudnn/attention.h"
#include "mudnn/attention_backward.h"

namespace musa {
namespace {

std::optional<mudnn::AttentionMask::Kind> mask_kind(c10::ScalarType type) {
  using Kind = mudnn::AttentionMask::Kind;
  switch (type) {
    case c10::ScalarType::Bool:
      return Kind::kBool;
    case c10::ScalarType::Float:
      return Kind::kFloat32;
    case c10::ScalarType::BFloat16:
      return Kind::kBfloat16;
    case c10::ScalarType::Half:
      return Kind::kFloat16;
    default:
      return std::nullopt;
  }
}

at::Tensor with_contiguous_rows(const at::Tensor& x) { return x.stride(-1) == 1 ? x : x.contiguous(); }

mudnn::AttentionRows rows_of(const at::Tensor& x) {
  return {.data = x.const_data_ptr(), .batch = x.stride(0), .head = x.stride(1), .row = x.stride(2)};
}

mudnn::AttentionMask mask_of(const at::Tensor& given, const at::Tensor& query, const at::Tensor& key) {
  const at::Tensor mask = given.expand({query.size(0), query.size(1), query.size(2), key.size(2)});
  return {
      .kind = *mask_kind(mask.scalar_type()),
      .data = mask.const_data_ptr(),
      .batch = mask.stride(0),
      .head = mask.stride(1),
      .query = mask.stride(2),
      .key = mask.stride(3)};
}

}  // namespace

bool attention_fits(
    const at::Tensor& query, const at::Tensor& key, const at::Tensor& value, const std::optional<at::Tensor>& mask) {
  const c10::ScalarType type = query.scalar_type();
  if (!mudnn_dtype(type).has_value() || key.scalar_type() != type || value.scalar_type() != type) {
    return false;
  }
  if (query.dim() != 4 || key.dim() != 4 || value.dim() != 4 || query.size(3) == 0 || value.size(3) == 0) {
    return false;
  }
  const bool sizes = key.size(0) == query.size(0) && value.size(0) == query.size(0) && key.size(1) > 0 &&
      value.size(1) == key.size(1) && query.size(1) % key.size(1) == 0 && key.size(3) == query.size(3) &&
      value.size(2) == key.size(2);
  return sizes && (!mask.has_value() || !mask->defined() || mask_kind(mask->scalar_type()).has_value());
}

namespace {

/// Tensors of contiguous rows; what the problem points to must outlive it.
mudnn::AttentionProblem problem_of(
    const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const std::optional<at::Tensor>& mask,
    const AttentionExtras& extras, std::optional<double> scale, const at::Tensor& logsumexp) {
  mudnn::AttentionProblem problem{
      .dtype = *mudnn_dtype(q.scalar_type()),
      .batches = q.size(0),
      .heads = q.size(1),
      .kv_heads = k.size(1),
      .queries = q.size(2),
      .keys = k.size(2),
      .head_dim = q.size(3),
      .value_dim = v.size(3),
      .query = rows_of(q),
      .key = rows_of(k),
      .value = rows_of(v),
      .out = nullptr,
      .out_batch = 0,
      .out_head = 0,
      .out_row = 0,
      .scale = static_cast<float>(scale.value_or(1.0 / std::sqrt(static_cast<double>(q.size(3))))),
      .softcap = static_cast<float>(extras.softcap),
      .bottom_right = extras.align_end,
      .left = extras.left,
      .right = extras.right,
      .global_keys = extras.global_keys,
      .mask = {},
      .blocks = {}};
  if (logsumexp.defined()) {
    problem.logsumexp = logsumexp.mutable_data_ptr<float>();
    problem.logsumexp_batch = logsumexp.stride(0);
    problem.logsumexp_head = logsumexp.stride(1);
    problem.logsumexp_row = logsumexp.stride(2);
  }
  if (extras.sinks.defined()) {
    problem.sinks = extras.sinks.const_data_ptr<float>();
  }
  if (extras.block_mask.defined()) {
    const at::Tensor& blocks = extras.block_mask;
    problem.blocks = {
        .live = static_cast<const uint8_t*>(blocks.const_data_ptr()),
        .batch = blocks.size(0) == 1 ? 0 : blocks.stride(0),
        .head = blocks.size(1) == 1 ? 0 : blocks.stride(1),
        .row = blocks.size(3),
        .query_size = extras.block_queries,
        .key_size = extras.block_keys};
  }
  if (mask.has_value() && mask->defined()) {
    problem.mask = mask_of(*mask, q, k);
  }
  return problem;
}

mudnn::AttentionGradientRows gradient_rows(const at::Tensor& x) {
  return {.data = x.mutable_data_ptr(), .batch = x.stride(0), .head = x.stride(1), .row = x.stride(2)};
}

}  // namespace

at::Tensor empty_rows_like(const at::Tensor& like) {
  at::Tensor made = at::empty_like(like);
  return made.stride(-1) == 1 ? made : at::empty(like.sizes(), like.options());
}

void run_attention(
    const at::Tensor& query, const at::Tensor& key, const at::Tensor& value, const std::optional<at::Tensor>& mask,
    const AttentionExtras& extras, std::optional<double> scale, const at::Tensor& out, const at::Tensor& logsumexp) {
  const at::Tensor q = with_contiguous_rows(query);
  const at::Tensor k = with_contiguous_rows(key);
  const at::Tensor v = with_contiguous_rows(value);
  mudnn::AttentionProblem problem = problem_of(q, k, v, mask, extras, scale, logsumexp);
  problem.out = out.mutable_data_ptr();
  problem.out_batch = out.stride(0);
  problem.out_head = out.stride(1);
  problem.out_row = out.stride(2);
  run_attention(problem);
}

AttentionGradients run_attention_backward(
    const at::Tensor& query, const at::Tensor& key, const at::Tensor& value, const std::optional<at::Tensor>& mask,
    const AttentionExtras& extras, std::optional<double> scale, const at::Tensor& out, const at::Tensor& logsumexp,
    const at::Tensor& grad_out, const at::Tensor& grad_logsumexp) {
  const at::Tensor q = with_contiguous_rows(query);
  const at::Tensor k = with_contiguous_rows(key);
  const at::Tensor v = with_contiguous_rows(value);
  const at::Tensor o = with_contiguous_rows(out);
  const at::Tensor grad = with_contiguous_rows(grad_out);
  const at::Tensor grad_lse = grad_logsumexp.defined() ? grad_logsumexp.contiguous() : at::Tensor();
  AttentionGradients result{empty_rows_like(q), empty_rows_like(k), empty_rows_like(v), at::Tensor()};
  at::Tensor sinks;
  if (extras.sinks.defined()) {
    sinks = at::empty({q.size(0), q.size(1)}, extras.sinks.options());
  }
  const mudnn::AttentionProblem problem = problem_of(q, k, v, mask, extras, scale, logsumexp);
  mudnn::attention_backward(
      problem,
      {.out = rows_of(o),
       .grad_out = rows_of(grad),
       .grad_logsumexp = grad_lse.defined() ? grad_lse.const_data_ptr<float>() : nullptr,
       .grad_query = gradient_rows(result.query),
       .grad_key = gradient_rows(result.key),
       .grad_value = gradient_rows(result.value),
       .grad_sinks = sinks.defined() ? sinks.mutable_data_ptr<float>() : nullptr},
      torch_threads());
  if (sinks.defined()) {
    result.sinks = sinks.sum(0);
  }
  return result;
}

namespace {

std::tuple<at::Tensor, at::Tensor> flash_attention_for_cpu(
    const at::Tensor& query, const at::Tensor& key, const at::Tensor& value, double dropout_p, bool is_causal,
    const std::optional<at::Tensor>& attn_mask, std::optional<double> scale) {
  if (dropout_p != 0 || query.dim() != 4 || !attention_fits(query, key, value, attn_mask) ||
      value.size(3) != query.size(3)) {
    note_reference();
    return at::_scaled_dot_product_flash_attention_for_cpu(query, key, value, dropout_p, is_causal, attn_mask, scale);
  }
  // The layouts of PyTorch's kernel.
  at::Tensor out =
      at::empty({query.size(0), query.size(2), query.size(1), query.size(3)}, query.options()).transpose(1, 2);
  at::Tensor logsumexp =
      at::empty({query.size(0), query.size(2), query.size(1)}, query.options().dtype(at::kFloat)).transpose(1, 2);
  run_attention(query, key, value, attn_mask, {.right = is_causal ? 0 : -1}, scale, out, logsumexp);
  return {std::move(out), std::move(logsumexp)};
}

MUSA_NATIVE_KERNEL("aten::_scaled_dot_product_flash_attention_for_cpu", flash_attention_for_cpu);

}  // namespace
}  // namespace musa
