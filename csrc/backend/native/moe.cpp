// musa::fused_moe.
#include "mudnn/moe.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/gelu.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/sigmoid.h>
#include <ATen/ops/silu.h>
#include <ATen/ops/tanh.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <torch/library.h>

#include "backend/bridge/flops.h"
#include "backend/native/differentiable.h"
#include "backend/native/kernels.h"
#include "backend/native/tensors.h"

namespace musa {
namespace {

using Pair = std::tuple<at::Tensor, at::Tensor>;
using Optional = std::optional<at::Tensor>;

mudnn::Activation activation_of(c10::string_view name) {
  if (name == "silu") return mudnn::Activation::kSilu;
  if (name == "gelu") return mudnn::Activation::kGeluErf;
  if (name == "gelu_tanh") return mudnn::Activation::kGeluTanh;
  if (name == "situ") return mudnn::Activation::kSitu;
  TORCH_CHECK_VALUE(false, "fused_moe: activation is 'silu', 'gelu', 'gelu_tanh' or 'situ', got '", name, "'");
}

void check_moe(
    const at::Tensor& x, const at::Tensor& gate_up, const at::Tensor& down, const at::Tensor& ids,
    const at::Tensor& weights, c10::string_view activation, const Optional& shared_gate_up, const Optional& shared_down,
    const Optional& shared_scale) {
  (void)activation_of(activation);
  TORCH_CHECK(
      x.dim() == 2 && gate_up.dim() == 3 && down.dim() == 3 && gate_up.sym_size(2) == x.sym_size(1) &&
          down.sym_size(0) == gate_up.sym_size(0) && down.sym_size(1) == x.sym_size(1) &&
          gate_up.sym_size(1) == down.sym_size(2) * 2,
      "fused_moe takes x [T, H], gate_up [E, 2 * I, H] and down [E, H, I]; got ", x.sym_sizes(), ", ",
      gate_up.sym_sizes(), " and ", down.sym_sizes());
  TORCH_CHECK(
      ids.dim() == 2 && ids.sym_size(0) == x.sym_size(0) && weights.sym_sizes() == ids.sym_sizes(),
      "fused_moe takes ids and weights of shape [T, k] for the ", x.sym_size(0), " tokens of x; got ", ids.sym_sizes(),
      " and ", weights.sym_sizes());
  TORCH_CHECK(
      (ids.scalar_type() == at::kLong || ids.scalar_type() == at::kInt) && weights.is_floating_point(),
      "fused_moe takes int32 or int64 ids and floating point weights, got ", ids.scalar_type(), " and ",
      weights.scalar_type());
  const bool has_shared = shared_gate_up.has_value();
  TORCH_CHECK(
      has_shared == shared_down.has_value() && (has_shared || !shared_scale.has_value()),
      "fused_moe: a shared expert has both shared_gate_up and shared_down, and shared_scale only with them");
  for (const at::Tensor& tensor : {gate_up, down, shared_gate_up.value_or(x), shared_down.value_or(x)}) {
    TORCH_CHECK(
        tensor.scalar_type() == x.scalar_type() && x.is_floating_point(),
        "fused_moe takes x and the experts' weights in one floating point dtype, got ", x.scalar_type(), " and ",
        tensor.scalar_type());
  }
  if (has_shared) {
    TORCH_CHECK(
        shared_gate_up->dim() == 2 && shared_down->dim() == 2 && shared_gate_up->sym_size(1) == x.sym_size(1) &&
            shared_down->sym_size(0) == x.sym_size(1) && shared_gate_up->sym_size(0) == shared_down->sym_size(1) * 2,
        "fused_moe takes shared_gate_up [2 * S, H] and shared_down [H, S]; got ", shared_gate_up->sym_sizes(), " and ",
        shared_down->sym_sizes());
    TORCH_CHECK(
        !shared_scale.has_value() || shared_scale->sym_numel() == x.sym_size(0),
        "fused_moe: shared_scale has one number for each of the ", x.sym_size(0), " tokens");
  }
}

Pair fused_moe_meta(
    const at::Tensor& x, const at::Tensor& gate_up, const at::Tensor& down, const at::Tensor& ids,
    const at::Tensor& weights, c10::string_view activation, const Optional& shared_gate_up, const Optional& shared_down,
    const Optional& shared_scale, double /*situ_beta*/, double /*situ_linear_beta*/) {
  check_moe(x, gate_up, down, ids, weights, activation, shared_gate_up, shared_down, shared_scale);
  return {
      at::empty_symint(x.sym_sizes(), x.options()),
      at::empty_symint({gate_up.sym_size(0)}, x.options().dtype(at::kLong))};
}

at::Tensor gated(const at::Tensor& gate_up, c10::string_view activation, double beta, double linear_beta) {
  const int64_t inner = gate_up.size(-1) / 2;
  const at::Tensor gate = gate_up.narrow(-1, 0, inner);
  const at::Tensor up = gate_up.narrow(-1, inner, inner);
  switch (activation_of(activation)) {
    case mudnn::Activation::kGeluErf:
      return at::gelu(gate) * up;
    case mudnn::Activation::kGeluTanh:
      return at::gelu(gate, "tanh") * up;
    case mudnn::Activation::kSitu: {
      const at::ScalarType wide = gate.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
      const at::Tensor g = gate.to(wide);
      const at::Tensor left = at::tanh(g / beta) * beta * at::sigmoid(g);
      return (left * (at::tanh(up.to(wide) / linear_beta) * linear_beta)).to(gate.scalar_type());
    }
    case mudnn::Activation::kSilu:
      break;
  }
  return at::silu(gate) * up;
}

/// Expert by expert, on any device; differentiable.
Pair fused_moe_reference(
    const at::Tensor& x, const at::Tensor& gate_up, const at::Tensor& down, const at::Tensor& ids,
    const at::Tensor& weights, c10::string_view activation, const Optional& shared_gate_up, const Optional& shared_down,
    const Optional& shared_scale, double situ_beta, double situ_linear_beta) {
  check_moe(x, gate_up, down, ids, weights, activation, shared_gate_up, shared_down, shared_scale);
  const int64_t experts = gate_up.size(0);
  const int64_t k = ids.size(1);
  const at::Tensor host_ids = ids.to(at::kCPU, at::kLong).contiguous();
  std::vector<std::vector<int64_t>> positions(static_cast<size_t>(experts));
  for (int64_t i = 0; i < host_ids.numel(); ++i) {
    const int64_t id = host_ids.const_data_ptr<int64_t>()[i];
    if (id >= 0 && id < experts) {
      positions[id].push_back(i);
    }
  }
  const at::ScalarType wide = x.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
  const at::Tensor flat_weights = weights.reshape({-1}).to(wide);
  at::Tensor sum = at::zeros(x.sizes(), x.options().dtype(wide));
  std::vector<int64_t> counts(static_cast<size_t>(experts));
  for (int64_t expert = 0; expert < experts; ++expert) {
    counts[expert] = static_cast<int64_t>(positions[expert].size());
    if (positions[expert].empty()) {
      continue;
    }
    const at::Tensor pairs = at::tensor(positions[expert], at::kLong).to(x.device());
    const at::Tensor tokens = pairs.div(k, "floor");
    const at::Tensor inner = gated(
        at::linear(x.index_select(0, tokens), gate_up.select(0, expert)), activation, situ_beta, situ_linear_beta);
    const at::Tensor product = at::linear(inner, down.select(0, expert)).to(wide);
    sum = sum.index_add(0, tokens, product * flat_weights.index_select(0, pairs).unsqueeze(1));
  }
  if (shared_gate_up.has_value()) {
    const at::Tensor inner = gated(at::linear(x, *shared_gate_up), activation, situ_beta, situ_linear_beta);
    at::Tensor product = at::linear(inner, *shared_down).to(wide);
    if (shared_scale.has_value()) {
      product = product * shared_scale->reshape({-1, 1}).to(wide);
    }
    sum = sum + product;
  }
  return {sum.to(x.scalar_type()), at::tensor(counts, at::kLong).to(x.device())};
}

Pair fused_moe(
    const at::Tensor& x, const at::Tensor& gate_up, const at::Tensor& down, const at::Tensor& ids,
    const at::Tensor& weights, c10::string_view activation, const Optional& shared_gate_up, const Optional& shared_down,
    const Optional& shared_scale, double situ_beta, double situ_linear_beta) {
  const std::optional<mudnn::Dtype> dtype = mudnn_dtype(x.scalar_type());
  if (!dtype.has_value()) {
    note_reference();
    return fused_moe_reference(
        x, gate_up, down, ids, weights, activation, shared_gate_up, shared_down, shared_scale, situ_beta,
        situ_linear_beta);
  }
  Pair out = fused_moe_meta(
      x, gate_up, down, ids, weights, activation, shared_gate_up, shared_down, shared_scale, situ_beta,
      situ_linear_beta);
  const at::Tensor rows = x.contiguous();
  const at::Tensor first = gate_up.contiguous();
  const at::Tensor second = down.contiguous();
  const at::Tensor chosen = ids.contiguous();
  const at::Tensor wide_weights = weights.to(at::kFloat).contiguous();
  const bool has_shared = shared_gate_up.has_value();
  const at::Tensor shared_first = has_shared ? shared_gate_up->contiguous() : at::Tensor();
  const at::Tensor shared_second = has_shared ? shared_down->contiguous() : at::Tensor();
  const at::Tensor scale = shared_scale.has_value() ? shared_scale->to(at::kFloat).contiguous() : at::Tensor();
  mudnn::fused_moe(
      {.dtype = *dtype,
       .tokens = x.size(0),
       .hidden = x.size(1),
       .inner = down.size(2),
       .experts = gate_up.size(0),
       .k = ids.size(1),
       .x = rows.const_data_ptr(),
       .gate_up = first.const_data_ptr(),
       .down = second.const_data_ptr(),
       .ids = chosen.const_data_ptr(),
       .wide_ids = chosen.scalar_type() == at::kLong,
       .weights = wide_weights.const_data_ptr<float>(),
       .gating =
           {.activation = activation_of(activation),
            .situ_beta = static_cast<float>(situ_beta),
            .situ_linear_beta = static_cast<float>(situ_linear_beta)},
       .shared_inner = has_shared ? shared_second.size(1) : 0,
       .shared_gate_up = has_shared ? shared_first.const_data_ptr() : nullptr,
       .shared_down = has_shared ? shared_second.const_data_ptr() : nullptr,
       .shared_scale = scale.defined() ? scale.const_data_ptr<float>() : nullptr,
       .out = std::get<0>(out).mutable_data_ptr(),
       .counts = std::get<1>(out).mutable_data_ptr<int64_t>()},
      torch_threads());
  return out;
}

/// Every pair of token and expert, and as many experts' weights as these pairs may meet.
OpCost fused_moe_cost(const c10::IValue* arguments) {
  const at::Tensor& x = arguments[0].toTensor();
  const at::Tensor& down = arguments[2].toTensor();
  const int64_t pairs = arguments[3].toTensor().numel();
  const int64_t hidden = x.size(1);
  const int64_t inner = down.size(2);
  const int64_t shared = arguments[7].isTensor() ? arguments[7].toTensor().size(1) : 0;
  const auto met = static_cast<double>(std::min(pairs, down.size(0)));
  const double matrix = static_cast<double>(hidden) * static_cast<double>(inner);
  const double shared_matrix = static_cast<double>(hidden) * static_cast<double>(shared);
  const double numbers = 3 * met * matrix + 3 * shared_matrix + 2 * static_cast<double>(x.numel());
  return {
      .flops = mm_flops(pairs, 3 * inner, hidden) + mm_flops(x.size(0), 3 * shared, hidden),
      .bytes = numbers * static_cast<double>(x.itemsize())};
}

constexpr char kFusedMoe[] = "musa::fused_moe";
using FusedMoe = Differentiable<kFusedMoe, fused_moe_reference>;

MUSA_NATIVE_KERNEL("musa::fused_moe", fused_moe, fused_moe_cost);

TORCH_LIBRARY_FRAGMENT(musa, library) {
  library.def(
      "fused_moe(Tensor x, Tensor gate_up, Tensor down, Tensor ids, Tensor weights, *, str activation='silu', "
      "Tensor? shared_gate_up=None, Tensor? shared_down=None, Tensor? shared_scale=None, float situ_beta=4.0, "
      "float situ_linear_beta=25.0) -> (Tensor out, Tensor counts)");
}
TORCH_LIBRARY_IMPL(musa, Meta, library) { library.impl("fused_moe", TORCH_FN(fused_moe_meta)); }
TORCH_LIBRARY_IMPL(musa, CPU, library) { library.impl("fused_moe", TORCH_FN(fused_moe_reference)); }
TORCH_LIBRARY_IMPL(musa, AutogradCPU, library) { library.impl("fused_moe", TORCH_FN(FusedMoe::call)); }
TORCH_LIBRARY_IMPL(musa, AutogradPrivateUse1, library) { library.impl("fused_moe", TORCH_FN(FusedMoe::call)); }

}  // namespace
}  // namespace musa
