// RMS norm with what models put directly before and behind it: musa::rms_norm, add_rms_norm, add_rms_norm_,
// gated_rms_norm, qk_norm.
#include <ATen/OpMathType.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/rms_norm.h>
#include <ATen/ops/sigmoid.h>
#include <ATen/ops/silu.h>
#include <torch/library.h>

#include <string_view>

#include "backend/native/differentiable.h"
#include "backend/native/kernels.h"
#include "backend/native/norm.h"
#include "backend/native/rows.h"
#include "backend/native/tensors.h"
#include "backend/ops/devices.h"
#include "mudnn/norm.h"

namespace musa {
namespace {

using OptionalTensor = std::optional<at::Tensor>;
using TwoTensors = std::tuple<at::Tensor, at::Tensor>;

void check_weight(const char* op, const at::Tensor& x, const at::Tensor& weight) {
  TORCH_CHECK(x.dim() >= 1, op, " normalises the last dimension, got a tensor without dimensions");
  TORCH_CHECK(
      !weight.defined() || (weight.dim() == 1 && weight.sym_size(0) == x.sym_size(-1)), op,
      " takes a weight of shape [", x.sym_size(-1), "], the size of the last dimension, got ", weight.sym_sizes());
}

void check_partner(const char* op, const at::Tensor& x, const char* name, const at::Tensor& partner) {
  TORCH_CHECK(
      x.sym_sizes() == partner.sym_sizes() && x.scalar_type() == partner.scalar_type(), op, " takes x and ", name,
      " of one shape and dtype, got ", x.sym_sizes(), " ", x.scalar_type(), " and ", partner.sym_sizes(), " ",
      partner.scalar_type());
}

mudnn::GateKind gate_kind(c10::string_view activation) {
  if (activation == "silu" || activation == "swish") {
    return mudnn::GateKind::kSilu;
  }
  TORCH_CHECK(
      activation == "sigmoid", "gated_rms_norm knows the activations 'silu' ('swish') and 'sigmoid', got '", activation,
      "'");
  return mudnn::GateKind::kSigmoid;
}

at::Tensor empty_as(const at::Tensor& x) { return at::empty_symint(x.sym_sizes(), x.options()); }

// ---- formulas: the reference, and what is differentiated

at::Tensor in_op_math(const at::Tensor& x) { return x.to(at::toOpMathType(x.scalar_type())); }

}  // namespace

at::Tensor rms_norm_in_op_math(const at::Tensor& x, const at::Tensor& weight, double eps, double offset) {
  const at::Tensor wide = in_op_math(x);
  at::Tensor scale;
  if (weight.defined()) {
    scale = weight.to(wide.scalar_type());
    if (offset != 0) {
      scale = scale + offset;
    }
  }
  return at::rms_norm_symint(wide, {x.sym_size(-1)}, scale.defined() ? OptionalTensor(scale) : std::nullopt, eps);
}

namespace {

at::Tensor rms_norm_formula(const at::Tensor& x, const OptionalTensor& weight, double eps, double weight_offset) {
  const at::Tensor& scale = or_undefined(weight);
  check_weight("rms_norm", x, scale);
  if (weight_offset == 0 && (!scale.defined() || scale.scalar_type() == x.scalar_type())) {
    return at::rms_norm_symint(x, {x.sym_size(-1)}, weight, eps);
  }
  return rms_norm_in_op_math(x, scale, eps, weight_offset).to(x.scalar_type());
}

TwoTensors add_rms_norm_formula(
    const at::Tensor& x, const at::Tensor& residual, const OptionalTensor& weight, double eps, double weight_offset) {
  check_partner("add_rms_norm", x, "residual", residual);
  at::Tensor sum = x + residual;
  at::Tensor normed = rms_norm_formula(sum, weight, eps, weight_offset);
  return {std::move(normed), std::move(sum)};
}

at::Tensor gated_rms_norm_formula(
    const at::Tensor& x, const at::Tensor& gate, const OptionalTensor& weight, double eps, c10::string_view activation,
    bool norm_before_gate, double weight_offset) {
  check_weight("gated_rms_norm", x, or_undefined(weight));
  check_partner("gated_rms_norm", x, "gate", gate);
  const at::Tensor wide = in_op_math(gate);
  const at::Tensor factor = gate_kind(activation) == mudnn::GateKind::kSilu ? at::silu(wide) : at::sigmoid(wide);
  if (norm_before_gate) {
    return (rms_norm_in_op_math(x, or_undefined(weight), eps, weight_offset) * factor).to(x.scalar_type());
  }
  return rms_norm_in_op_math(in_op_math(x) * factor, or_undefined(weight), eps, weight_offset).to(x.scalar_type());
}

TwoTensors qk_norm_formula(
    const at::Tensor& q, const at::Tensor& k, const OptionalTensor& q_weight, const OptionalTensor& k_weight,
    double eps, double weight_offset) {
  return {rms_norm_formula(q, q_weight, eps, weight_offset), rms_norm_formula(k, k_weight, eps, weight_offset)};
}

void add_rms_norm_in_place_formula(
    const at::Tensor& x, const at::Tensor& residual, const OptionalTensor& weight, double eps, double weight_offset) {
  const auto [normed, sum] = add_rms_norm_formula(x, residual, weight, eps, weight_offset);
  residual.copy_(sum);
  x.copy_(normed);
}

// ---- kernels

/// What all of them have in common; `out` is still to be filled in. `keep` holds the memory that is pointed to.
std::optional<mudnn::NormProblem> problem_of(
    const at::Tensor& x, const at::Tensor& weight, double eps, double weight_offset, at::Tensor& keep) {
  const std::optional<NormDtypes> dtypes = norm_dtypes(x, weight);
  const int64_t columns = x.size(-1);
  if (!dtypes.has_value() || x.numel() == 0) {
    return std::nullopt;
  }
  keep = weight.defined() ? weight.contiguous() : weight;
  return mudnn::NormProblem{
      .dtype = dtypes->rows,
      .weight_dtype = dtypes->weight,
      .rows = row_count(x, columns),
      .columns = columns,
      .x = {},
      .weight = weight.defined() ? keep.const_data_ptr() : nullptr,
      .weight_offset = static_cast<float>(weight_offset),
      .eps = eps,
      .out = {}};
}

at::Tensor rms_norm(const at::Tensor& x, const OptionalTensor& weight, double eps, double weight_offset) {
  const at::Tensor& scale = or_undefined(weight);
  check_weight("rms_norm", x, scale);
  at::Tensor keep_weight;
  std::optional<mudnn::NormProblem> problem = problem_of(x, scale, eps, weight_offset, keep_weight);
  if (!problem.has_value()) {
    note_reference();
    return rms_norm_formula(x, weight, eps, weight_offset);
  }
  at::Tensor keep;
  at::Tensor out = fresh(x.sizes(), x.scalar_type());
  problem->x = rows_or_copy(x, keep);
  problem->out = contiguous_rows(out);
  mudnn::rms_norm(*problem, torch_threads());
  return out;
}

TwoTensors add_rms_norm(
    const at::Tensor& x, const at::Tensor& residual, const OptionalTensor& weight, double eps, double weight_offset) {
  check_partner("add_rms_norm", x, "residual", residual);
  check_weight("add_rms_norm", x, or_undefined(weight));
  at::Tensor keep_weight;
  std::optional<mudnn::NormProblem> problem = problem_of(x, or_undefined(weight), eps, weight_offset, keep_weight);
  if (!problem.has_value()) {
    note_reference();
    return add_rms_norm_formula(x, residual, weight, eps, weight_offset);
  }
  at::Tensor keep_x;
  at::Tensor keep_residual;
  at::Tensor out = fresh(x.sizes(), x.scalar_type());
  at::Tensor sum = fresh(x.sizes(), x.scalar_type());
  problem->x = rows_or_copy(x, keep_x);
  problem->residual = rows_or_copy(residual, keep_residual);
  problem->sum = contiguous_rows(sum);
  problem->out = contiguous_rows(out);
  mudnn::rms_norm(*problem, torch_threads());
  return {std::move(out), std::move(sum)};
}

void add_rms_norm_in_place(
    const at::Tensor& x, const at::Tensor& residual, const OptionalTensor& weight, double eps, double weight_offset) {
  check_partner("add_rms_norm_", x, "residual", residual);
  check_weight("add_rms_norm_", x, or_undefined(weight));
  at::Tensor keep_weight;
  std::optional<mudnn::NormProblem> problem = problem_of(x, or_undefined(weight), eps, weight_offset, keep_weight);
  const std::optional<mudnn::ConstRows> x_rows = row_layout(x);
  const std::optional<mudnn::ConstRows> residual_rows = row_layout(residual);
  if (!problem.has_value() || !x_rows.has_value() || !residual_rows.has_value()) {
    note_reference();
    add_rms_norm_in_place_formula(x, residual, weight, eps, weight_offset);
    return;
  }
  problem->out = {x.mutable_data_ptr(), x_rows->outer_stride, x_rows->inner, x_rows->inner_stride};
  problem->x = {problem->out.data, x_rows->outer_stride, x_rows->inner, x_rows->inner_stride};
  problem->sum = {
      residual.mutable_data_ptr(), residual_rows->outer_stride, residual_rows->inner, residual_rows->inner_stride};
  problem->residual = {
      problem->sum.data, residual_rows->outer_stride, residual_rows->inner, residual_rows->inner_stride};
  mudnn::rms_norm(*problem, torch_threads());
}

at::Tensor gated_rms_norm(
    const at::Tensor& x, const at::Tensor& gate, const OptionalTensor& weight, double eps, c10::string_view activation,
    bool norm_before_gate, double weight_offset) {
  const mudnn::GateKind kind = gate_kind(activation);
  check_weight("gated_rms_norm", x, or_undefined(weight));
  check_partner("gated_rms_norm", x, "gate", gate);
  at::Tensor keep_weight;
  std::optional<mudnn::NormProblem> problem = problem_of(x, or_undefined(weight), eps, weight_offset, keep_weight);
  if (!problem.has_value()) {
    note_reference();
    return gated_rms_norm_formula(x, gate, weight, eps, activation, norm_before_gate, weight_offset);
  }
  at::Tensor keep_x;
  at::Tensor keep_gate;
  at::Tensor out = fresh(x.sizes(), x.scalar_type());
  problem->x = rows_or_copy(x, keep_x);
  problem->gate = rows_or_copy(gate, keep_gate);
  problem->gate_kind = kind;
  problem->gate_first = !norm_before_gate;
  problem->out = contiguous_rows(out);
  mudnn::rms_norm(*problem, torch_threads());
  return out;
}

TwoTensors qk_norm(
    const at::Tensor& q, const at::Tensor& k, const OptionalTensor& q_weight, const OptionalTensor& k_weight,
    double eps, double weight_offset) {
  return {rms_norm(q, q_weight, eps, weight_offset), rms_norm(k, k_weight, eps, weight_offset)};
}

// ---- meta kernels

at::Tensor rms_norm_meta(const at::Tensor& x, const OptionalTensor& weight, double, double) {
  check_weight("rms_norm", x, or_undefined(weight));
  return empty_as(x);
}

TwoTensors add_rms_norm_meta(
    const at::Tensor& x, const at::Tensor& residual, const OptionalTensor& weight, double, double) {
  check_partner("add_rms_norm", x, "residual", residual);
  check_weight("add_rms_norm", x, or_undefined(weight));
  return {empty_as(x), empty_as(x)};
}

void add_rms_norm_in_place_meta(
    const at::Tensor& x, const at::Tensor& residual, const OptionalTensor& weight, double, double) {
  check_partner("add_rms_norm_", x, "residual", residual);
  check_weight("add_rms_norm_", x, or_undefined(weight));
}

at::Tensor gated_rms_norm_meta(
    const at::Tensor& x, const at::Tensor& gate, const OptionalTensor& weight, double, c10::string_view activation,
    bool, double) {
  (void)gate_kind(activation);
  check_weight("gated_rms_norm", x, or_undefined(weight));
  check_partner("gated_rms_norm", x, "gate", gate);
  return empty_as(x);
}

TwoTensors qk_norm_meta(
    const at::Tensor& q, const at::Tensor& k, const OptionalTensor& q_weight, const OptionalTensor& k_weight, double,
    double) {
  check_weight("qk_norm", q, or_undefined(q_weight));
  check_weight("qk_norm", k, or_undefined(k_weight));
  return {empty_as(q), empty_as(k)};
}

void add_rms_norm_in_place_autograd(
    const at::Tensor& x, const at::Tensor& residual, const OptionalTensor& weight, double eps, double weight_offset) {
  TORCH_CHECK(
      !wants_derivative(x) && !wants_derivative(residual) && !wants_derivative(weight),
      "add_rms_norm_ overwrites what its derivative needs; use add_rms_norm, or call it under torch.no_grad()");
  static const auto op = c10::Dispatcher::singleton()
                             .findSchemaOrThrow("musa::add_rms_norm_", "")
                             .typed<decltype(add_rms_norm_in_place)>();
  {
    const at::AutoDispatchBelowADInplaceOrView below;
    op.call(x, residual, weight, eps, weight_offset);
  }
  for (const at::Tensor& written : {x, residual}) {
    if (!written.is_inference()) {
      written.unsafeGetTensorImpl()->bump_version();
    }
  }
}

constexpr char kRmsNorm[] = "musa::rms_norm";
constexpr char kAddRmsNorm[] = "musa::add_rms_norm";
constexpr char kGatedRmsNorm[] = "musa::gated_rms_norm";
constexpr char kQkNorm[] = "musa::qk_norm";

MUSA_NATIVE_KERNEL(kRmsNorm, rms_norm);
MUSA_NATIVE_KERNEL(kAddRmsNorm, add_rms_norm);
MUSA_NATIVE_KERNEL("musa::add_rms_norm_", add_rms_norm_in_place);
MUSA_NATIVE_KERNEL(kGatedRmsNorm, gated_rms_norm);
MUSA_NATIVE_KERNEL(kQkNorm, qk_norm);

TORCH_LIBRARY_FRAGMENT(musa, library) {
  library.def("rms_norm(Tensor x, Tensor? weight=None, float eps=1e-6, float weight_offset=0.0) -> Tensor");
  library.def(
      "add_rms_norm(Tensor x, Tensor residual, Tensor? weight=None, float eps=1e-6, float weight_offset=0.0) -> "
      "(Tensor, Tensor)");
  library.def(
      "add_rms_norm_(Tensor(a!) x, Tensor(b!) residual, Tensor? weight=None, float eps=1e-6, float "
      "weight_offset=0.0) -> ()");
  library.def(
      "gated_rms_norm(Tensor x, Tensor gate, Tensor? weight=None, float eps=1e-6, str activation='silu', bool "
      "norm_before_gate=True, float weight_offset=0.0) -> Tensor");
  library.def(
      "qk_norm(Tensor q, Tensor k, Tensor? q_weight=None, Tensor? k_weight=None, float eps=1e-6, float "
      "weight_offset=0.0) -> (Tensor, Tensor)");
}

TORCH_LIBRARY_IMPL(musa, CPU, library) {
  library.impl("rms_norm", TORCH_FN(rms_norm_formula));
  library.impl("add_rms_norm", TORCH_FN(add_rms_norm_formula));
  library.impl("add_rms_norm_", TORCH_FN(add_rms_norm_in_place_formula));
  library.impl("gated_rms_norm", TORCH_FN(gated_rms_norm_formula));
  library.impl("qk_norm", TORCH_FN(qk_norm_formula));
}

TORCH_LIBRARY_IMPL(musa, Meta, library) {
  library.impl("rms_norm", TORCH_FN(rms_norm_meta));
  library.impl("add_rms_norm", TORCH_FN(add_rms_norm_meta));
  library.impl("add_rms_norm_", TORCH_FN(add_rms_norm_in_place_meta));
  library.impl("gated_rms_norm", TORCH_FN(gated_rms_norm_meta));
  library.impl("qk_norm", TORCH_FN(qk_norm_meta));
}

TORCH_LIBRARY_IMPL(musa, Autograd, library) {
  library.impl("rms_norm", TORCH_FN((Differentiable<kRmsNorm, rms_norm_formula>::call)));
  library.impl("add_rms_norm", TORCH_FN((Differentiable<kAddRmsNorm, add_rms_norm_formula>::call)));
  library.impl("add_rms_norm_", TORCH_FN(add_rms_norm_in_place_autograd));
  library.impl("gated_rms_norm", TORCH_FN((Differentiable<kGatedRmsNorm, gated_rms_norm_formula>::call)));
  library.impl("qk_norm", TORCH_FN((Differentiable<kQkNorm, qk_norm_formula>::call)));
}

}  // namespace
}  // namespace musa
