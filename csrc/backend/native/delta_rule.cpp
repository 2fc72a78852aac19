// musa::gated_delta_rule: the linear attention of Kimi Delta Attention (a decay for each channel) and of gated
// DeltaNet (one for each head).
#include "mudnn/delta_rule.h"

#include <ATen/OpMathType.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/exp.h>
#include <ATen/ops/rsqrt.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/zeros.h>
#include <torch/library.h>

#include <cmath>
#include <tuple>
#include <vector>

#include "backend/native/differentiable.h"
#include "backend/native/kernels.h"
#include "backend/native/rows.h"
#include "backend/native/tensors.h"

namespace musa {
namespace {

using Optional = std::optional<at::Tensor>;
using Pair = std::tuple<at::Tensor, at::Tensor>;

c10::SymInt sequence_count(const at::Tensor& q, const Optional& cu_seqlens) {
  return cu_seqlens.has_value() ? cu_seqlens->sym_size(0) - 1 : q.sym_size(0);
}

void check(
    const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const at::Tensor& decay, const at::Tensor& beta,
    const Optional& state, const Optional& cu_seqlens) {
  TORCH_CHECK_VALUE(
      q.dim() == 4 && k.sym_sizes().equals(q.sym_sizes()) && v.dim() == 4 &&
          v.sym_sizes().slice(0, 3).equals(q.sym_sizes().slice(0, 3)),
      "gated_delta_rule takes q and k of shape [batch, tokens, heads, keys] and v of shape [batch, tokens, heads, "
      "values], got ",
      q.sym_sizes(), ", ", k.sym_sizes(), " and ", v.sym_sizes());
  TORCH_CHECK_VALUE(
      (decay.sym_sizes().equals(q.sym_sizes()) || decay.sym_sizes().equals(q.sym_sizes().slice(0, 3))) &&
          beta.sym_sizes().equals(q.sym_sizes().slice(0, 3)),
      "gated_delta_rule takes beta of shape [batch, tokens, heads] and decay of that shape or of q's, got ",
      beta.sym_sizes(), " and ", decay.sym_sizes(), " with q of ", q.sym_sizes());
  TORCH_CHECK_TYPE(
      q.is_floating_point() && k.scalar_type() == q.scalar_type() && v.scalar_type() == q.scalar_type() &&
          decay.is_floating_point() && beta.is_floating_point(),
      "gated_delta_rule takes q, k and v of one floating dtype and floating decay and beta, got ", q.scalar_type(),
      ", ", k.scalar_type(), ", ", v.scalar_type(), ", ", decay.scalar_type(), " and ", beta.scalar_type());
  if (cu_seqlens.has_value()) {
    TORCH_CHECK_VALUE(
        cu_seqlens->dim() == 1 && cu_seqlens->sym_size(0) >= 1 && q.sym_size(0) == 1 &&
            (cu_seqlens->scalar_type() == at::kLong || cu_seqlens->scalar_type() == at::kInt),
        "gated_delta_rule takes int32 or int64 cu_seqlens of shape [sequences + 1] with a batch of 1, got ",
        cu_seqlens->scalar_type(), " of shape ", cu_seqlens->sym_sizes(), " with a batch of ", q.sym_size(0));
  }
  if (state.has_value()) {
    const c10::SymInt sizes[] = {sequence_count(q, cu_seqlens), q.sym_size(2), q.sym_size(3), v.sym_size(3)};
    TORCH_CHECK_VALUE(
        state->sym_sizes().equals(sizes) && state->scalar_type() == at::toOpMathType(q.scalar_type()),
        "gated_delta_rule takes a state of shape [sequences, heads, keys, values] = ", c10::SymIntArrayRef(sizes),
        " and of dtype ", at::toOpMathType(q.scalar_type()), ", got ", state->sym_sizes(), " and ",
        state->scalar_type());
  }
}

/// Where sequences begin among batch * tokens, and the end of the last.
std::vector<int64_t> bounds_of(const at::Tensor& q, const Optional& cu_seqlens) {
  std::vector<int64_t> bounds;
  if (!cu_seqlens.has_value()) {
    for (int64_t row = 0; row <= q.size(0); ++row) {
      bounds.push_back(row * q.size(1));
    }
    return bounds;
  }
  const at::Tensor host = cu_seqlens->to(at::TensorOptions().device(at::kCPU).dtype(at::kLong)).contiguous();
  bounds.assign(host.const_data_ptr<int64_t>(), host.const_data_ptr<int64_t>() + host.numel());
  bool ascends = bounds.front() == 0 && bounds.back() == q.size(1);
  for (size_t i = 1; i < bounds.size(); ++i) {
    ascends = ascends && bounds[i - 1] <= bounds[i];
  }
  TORCH_CHECK_VALUE(
      ascends, "gated_delta_rule takes cu_seqlens that ascend from 0 to the number of tokens, ", q.size(1), ", got ",
      host);
  return bounds;
}

double scale_of(const at::Tensor& q, std::optional<double> scale) {
  return scale.has_value() ? *scale : 1 / std::sqrt(static_cast<double>(q.size(3)));
}

at::Tensor normalised(const at::Tensor& x) { return x * at::rsqrt((x * x).sum(-1, /*keepdim=*/true) + 1e-6); }

Pair reference(
    const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const at::Tensor& decay, const at::Tensor& beta,
    const Optional& state, const Optional& cu_seqlens, std::optional<double> scale, bool qk_l2norm) {
  check(q, k, v, decay, beta, state, cu_seqlens);
  const at::ScalarType wide = at::toOpMathType(q.scalar_type());
  at::Tensor queries = q.to(wide);
  at::Tensor keys = k.to(wide);
  if (qk_l2norm) {
    queries = normalised(queries);
    keys = normalised(keys);
  }
  queries = queries * scale_of(q, scale);
  const at::Tensor values = v.to(wide);
  const at::Tensor write = beta.to(wide).unsqueeze(-1);
  at::Tensor keep = at::exp(decay.to(wide));
  if (keep.dim() == 3) {
    keep = keep.unsqueeze(-1);
  }
  const int64_t count = cu_seqlens.has_value() ? cu_seqlens->size(0) - 1 : q.size(0);
  const at::Tensor start = state.has_value()
      ? state->to(wide, /*non_blocking=*/false, /*copy=*/true)
      : at::zeros({count, q.size(2), q.size(3), v.size(3)}, q.options().dtype(wide));

  std::vector<at::Tensor> outputs;
  const auto walk = [&](at::Tensor s, int64_t begin, int64_t end) {
    for (int64_t t = begin; t < end; ++t) {
      const at::Tensor key = keys.select(1, t).unsqueeze(-1);
      s = s * keep.select(1, t).unsqueeze(-1);
      const at::Tensor update = write.select(1, t) * (values.select(1, t) - (s * key).sum(-2));
      s = s + key * update.unsqueeze(-2);
      outputs.push_back((s * queries.select(1, t).unsqueeze(-1)).sum(-2));
    }
    return s;
  };
  at::Tensor last = start;
  if (cu_seqlens.has_value()) {
    const std::vector<int64_t> bounds = bounds_of(q, cu_seqlens);
    std::vector<at::Tensor> states;
    for (int64_t i = 0; i < count; ++i) {
      const size_t at = static_cast<size_t>(i);
      states.push_back(walk(start.narrow(0, i, 1), bounds[at], bounds[at + 1]));
    }
    last = states.empty() ? start : at::cat(states, 0);
  } else {
    last = walk(start, 0, q.size(1));
  }
  return {
      outputs.empty() ? at::empty_like(v, at::MemoryFormat::Contiguous) : at::stack(outputs, 1).to(q.scalar_type()),
      last};
}

Pair meta(
    const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const at::Tensor& decay, const at::Tensor& beta,
    const Optional& state, const Optional& cu_seqlens, std::optional<double>, bool) {
  check(q, k, v, decay, beta, state, cu_seqlens);
  return {
      at::empty_symint(v.sym_sizes(), v.options()),
      at::empty_symint(
          {sequence_count(q, cu_seqlens), q.sym_size(2), q.sym_size(3), v.sym_size(3)},
          q.options().dtype(at::toOpMathType(q.scalar_type())))};
}

Pair gated_delta_rule(
    const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const at::Tensor& decay, const at::Tensor& beta,
    const Optional& state, const Optional& cu_seqlens, std::optional<double> scale, bool qk_l2norm) {
  const std::optional<mudnn::Dtype> dtype = mudnn_dtype(q.scalar_type());
  if (!dtype.has_value()) {
    note_reference();
    return reference(q, k, v, decay, beta, state, cu_seqlens, scale, qk_l2norm);
  }
  check(q, k, v, decay, beta, state, cu_seqlens);
  const std::vector<int64_t> bounds = bounds_of(q, cu_seqlens);
  const auto sequences = static_cast<int64_t>(bounds.size()) - 1;
  const at::Tensor queries = q.contiguous();
  const at::Tensor keys = k.contiguous();
  const at::Tensor values = v.contiguous();
  const at::Tensor decays = decay.to(at::kFloat).contiguous();
  const at::Tensor betas = beta.to(at::kFloat).contiguous();
  const at::Tensor initial = state.has_value() ? state->contiguous() : at::Tensor();
  at::Tensor out = fresh(v.sizes(), v.scalar_type());
  at::Tensor last = fresh({sequences, q.size(2), q.size(3), v.size(3)}, at::kFloat);
  mudnn::delta_rule(
      {.dtype = *dtype,
       .sequences = sequences,
       .heads = q.size(2),
       .keys = q.size(3),
       .values = v.size(3),
       .bounds = bounds.data(),
       .q = queries.const_data_ptr(),
       .k = keys.const_data_ptr(),
       .v = values.const_data_ptr(),
       .decay = decays.const_data_ptr<float>(),
       .per_channel = decay.dim() == 4,
       .beta = betas.const_data_ptr<float>(),
       .initial = initial.defined() ? initial.const_data_ptr<float>() : nullptr,
       .state = last.mutable_data_ptr<float>(),
       .out = out.mutable_data_ptr(),
       .scale = static_cast<float>(scale_of(q, scale)),
       .l2norm = qk_l2norm},
      torch_threads());
  return {out, last};
}

/// Three products of a token with its head's state.
OpCost cost(const c10::IValue* arguments) {
  return {
      .flops = 6.0 * static_cast<double>(arguments[0].toTensor().numel()) *
          static_cast<double>(arguments[2].toTensor().size(-1))};
}

constexpr char kGatedDeltaRule[] = "musa::gated_delta_rule";

MUSA_NATIVE_KERNEL(kGatedDeltaRule, gated_delta_rule, cost);

TORCH_LIBRARY_FRAGMENT(musa, library) {
  library.def(
      "gated_delta_rule(Tensor q, Tensor k, Tensor v, Tensor decay, Tensor beta, Tensor? state=None, "
      "Tensor? cu_seqlens=None, float? scale=None, bool qk_l2norm=False) -> (Tensor out, Tensor state)");
}
TORCH_LIBRARY_IMPL(musa, CPU, library) { library.impl("gated_delta_rule", TORCH_FN(reference)); }
TORCH_LIBRARY_IMPL(musa, Meta, library) { library.impl("gated_delta_rule", TORCH_FN(meta)); }
TORCH_LIBRARY_IMPL(musa, Autograd, library) {
  library.impl("gated_delta_rule", TORCH_FN((Differentiable<kGatedDeltaRule, reference>::call)));
}

}  // namespace
}  // namespace musa
