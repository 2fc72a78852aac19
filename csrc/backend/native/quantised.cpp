// musa::w8a8_linear and aten::_int_mm.
#include "mudnn/quantised.h"

#include <ATen/EmptyTensor.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/_int_mm.h>
#include <ATen/ops/_int_mm_cpu_dispatch.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/isfinite.h>
#include <ATen/ops/where.h>
#include <torch/library.h>

#include <cmath>
#include <limits>
#include <optional>

#include "backend/native/differentiable.h"
#include "backend/native/kernels.h"
#include "backend/native/rows.h"
#include "backend/native/tensors.h"

namespace musa {
namespace {

using at::Tensor;
using OptionalTensor = std::optional<Tensor>;

void check_linear(
    const Tensor& x, const Tensor& weight, const Tensor& weight_scale, const OptionalTensor& bias,
    const OptionalTensor& input_scale) {
  TORCH_CHECK_TYPE(
      mudnn_dtype(x.scalar_type()).has_value() && weight.scalar_type() == at::kChar &&
          weight_scale.scalar_type() == at::kFloat,
      "w8a8_linear takes x of float32, bfloat16 or float16, an int8 weight and a float32 weight_scale, got ",
      x.scalar_type(), ", ", weight.scalar_type(), " and ", weight_scale.scalar_type());
  TORCH_CHECK_VALUE(
      x.dim() >= 1 && weight.dim() == 2 && x.sym_size(-1) == weight.sym_size(1),
      "w8a8_linear takes x [..., k] and weight [n, k], got ", x.sym_sizes(), " and ", weight.sym_sizes());
  TORCH_CHECK_VALUE(
      weight_scale.dim() == 1 && weight_scale.sym_size(0) == weight.sym_size(0),
      "w8a8_linear takes one weight_scale for each of the weight's ", weight.sym_size(0), " rows, got ",
      weight_scale.sym_sizes());
  if (bias.has_value()) {
    TORCH_CHECK_VALUE(
        bias->dim() == 1 && bias->sym_size(0) == weight.sym_size(0) && bias->scalar_type() == x.scalar_type(),
        "w8a8_linear takes a bias [n] of x's dtype, got ", bias->sym_sizes(), " of ", bias->scalar_type());
  }
  if (input_scale.has_value()) {
    TORCH_CHECK_VALUE(
        input_scale->sym_numel() == 1 && input_scale->scalar_type() == at::kFloat,
        "w8a8_linear takes as input_scale one positive float32 number, got ", input_scale->sym_sizes(), " of ",
        input_scale->scalar_type());
  }
}

float scale_value(const OptionalTensor& input_scale) {
  if (!input_scale.has_value()) {
    return 0;
  }
  const float scale = *input_scale->const_data_ptr<float>();
  TORCH_CHECK_VALUE(
      scale >= std::numeric_limits<float>::min() && std::isfinite(scale),
      "w8a8_linear takes as input_scale one positive float32 number, got ", scale);
  return scale;
}

Tensor w8a8_linear_reference(
    const Tensor& x, const Tensor& weight, const Tensor& weight_scale, const OptionalTensor& bias,
    const OptionalTensor& input_scale) {
  check_linear(x, weight, weight_scale, bias, input_scale);
  c10::SmallVector<int64_t, 6> sizes(x.sizes().begin(), x.sizes().end());
  sizes.back() = weight.size(0);
  const int64_t k = weight.size(1);
  const int64_t rows = row_count(x, k);
  if (rows == 0 || weight.size(0) == 0) {
    const Tensor empty = at::empty(sizes, x.options()).zero_();
    return bias.has_value() ? empty + *bias : empty;
  }
  const Tensor wide = x.reshape({rows, k}).to(at::kFloat);
  const Tensor scale = input_scale.has_value()
      ? at::empty({rows, 1}, wide.options()).fill_(scale_value(input_scale))
      : (wide.abs().amax({1}, true) / 127).clamp_min(std::numeric_limits<float>::min());
  const Tensor rounded = (wide * scale.reciprocal()).nan_to_num(0).clamp(-128, 127).round().to(at::kChar);
  const Tensor finite = at::isfinite(wide).all(1, true);
  const Tensor factor = at::where(finite, scale, std::numeric_limits<float>::quiet_NaN());
  Tensor out = at::_int_mm(rounded, weight.t()).to(at::kFloat) * (factor * weight_scale);
  if (bias.has_value()) {
    out = out + bias->to(at::kFloat);
  }
  return out.to(x.scalar_type()).reshape(sizes);
}

Tensor w8a8_linear_meta(
    const Tensor& x, const Tensor& weight, const Tensor& weight_scale, const OptionalTensor& bias,
    const OptionalTensor& input_scale) {
  check_linear(x, weight, weight_scale, bias, input_scale);
  std::vector<c10::SymInt> sizes = x.sym_sizes().vec();
  sizes.back() = weight.sym_size(0);
  return at::empty_symint(sizes, x.options());
}

mudnn::Int8Problem int8_problem(const Tensor& a, const Tensor& b) {
  mudnn::Int8Problem problem{};
  problem.m = a.size(0);
  problem.n = b.size(1);
  problem.k = a.size(1);
  problem.a = a.const_data_ptr<int8_t>();
  problem.a_row = a.stride(0);
  problem.a_column = problem.k == 1 ? 1 : a.stride(1);
  problem.b = b.const_data_ptr<int8_t>();
  problem.b_row = problem.k == 1 ? 1 : b.stride(0);
  problem.b_column = b.stride(1);
  return problem;
}

Tensor w8a8_linear(
    const Tensor& x, const Tensor& weight, const Tensor& weight_scale, const OptionalTensor& bias,
    const OptionalTensor& input_scale) {
  check_linear(x, weight, weight_scale, bias, input_scale);
  const int64_t k = weight.size(1);
  const int64_t rows = row_count(x, k);
  if (rows == 0) {
    note_reference();
    return w8a8_linear_reference(x, weight, weight_scale, bias, input_scale);
  }
  const Tensor dense = x.contiguous();
  const Tensor rounded = fresh({rows, k}, at::kChar);
  const Tensor scales = fresh({rows}, at::kFloat);
  mudnn::quantise_rows(
      {.dtype = *mudnn_dtype(x.scalar_type()),
       .rows = rows,
       .columns = k,
       .x = dense.const_data_ptr(),
       .scale = scale_value(input_scale),
       .out = rounded.mutable_data_ptr<int8_t>(),
       .row_scales = scales.mutable_data_ptr<float>()},
      torch_threads());
  c10::SmallVector<int64_t, 6> sizes(x.sizes().begin(), x.sizes().end());
  sizes.back() = weight.size(0);
  const Tensor out = fresh(sizes, x.scalar_type());
  const Tensor column_scales = weight_scale.contiguous();
  const Tensor dense_bias = bias.has_value() ? bias->contiguous() : Tensor();
  mudnn::Int8Problem problem = int8_problem(rounded, weight.t());
  problem.out = out.mutable_data_ptr();
  problem.out_dtype = *mudnn_dtype(x.scalar_type());
  problem.row_scales = scales.const_data_ptr<float>();
  problem.column_scales = column_scales.const_data_ptr<float>();
  problem.bias = bias.has_value() ? dense_bias.const_data_ptr() : nullptr;
  mudnn::int8_gemm(problem, torch_threads());
  return out;
}

bool are_int8_matrices(const Tensor& a, const Tensor& b) {
  return a.dim() == 2 && b.dim() == 2 && a.scalar_type() == at::kChar && b.scalar_type() == at::kChar &&
      a.size(1) == b.size(0);
}

Tensor int8_product(const Tensor& a, const Tensor& b) {
  Tensor out = fresh({a.size(0), b.size(1)}, at::kInt);
  mudnn::Int8Problem problem = int8_problem(a, b);
  problem.sums = out.mutable_data_ptr<int32_t>();
  mudnn::int8_gemm(problem, torch_threads());
  return out;
}

Tensor int_mm(const Tensor& a, const Tensor& b) {
  if (!are_int8_matrices(a, b)) {
    note_reference();
    return at::cpu::_int_mm(a, b);
  }
  return int8_product(a, b);
}

Tensor& int_mm_out(const Tensor& a, const Tensor& b, Tensor& out) {
  if (!are_int8_matrices(a, b) || out.scalar_type() != at::kInt || out.dim() != 2 || out.size(0) != a.size(0) ||
      out.size(1) != b.size(1)) {
    note_reference();
    return at::cpu::_int_mm_outf(a, b, out);
  }
  out.copy_(int8_product(a, b));
  return out;
}

/// As if the rounding of x cost nothing beside the product.
OpCost w8a8_cost(const c10::IValue* arguments) {
  const Tensor& x = arguments[0].toTensor();
  const Tensor& weight = arguments[1].toTensor();
  return {.flops = 2.0 * static_cast<double>(x.numel()) * static_cast<double>(weight.size(0))};
}

MUSA_NATIVE_KERNEL("aten::_int_mm", int_mm);
MUSA_NATIVE_KERNEL("aten::_int_mm.out", int_mm_out);
MUSA_NATIVE_KERNEL("musa::w8a8_linear", w8a8_linear, w8a8_cost);

TORCH_LIBRARY_FRAGMENT(musa, library) {
  library.def(
      "w8a8_linear(Tensor x, Tensor weight, Tensor weight_scale, Tensor? bias=None, Tensor? input_scale=None) -> "
      "Tensor");
}
TORCH_LIBRARY_IMPL(musa, CPU, library) { library.impl("w8a8_linear", TORCH_FN(w8a8_linear_reference)); }
TORCH_LIBRARY_IMPL(musa, Meta, library) { library.impl("w8a8_linear", TORCH_FN(w8a8_linear_meta)); }

constexpr char kW8a8Linear[] = "musa::w8a8_linear";

TORCH_LIBRARY_IMPL(musa, AutogradCPU, library) {
  library.impl("w8a8_linear", TORCH_FN((NotDifferentiable<kW8a8Linear, w8a8_linear_reference>::call)));
}
TORCH_LIBRARY_IMPL(musa, AutogradPrivateUse1, library) {
  library.impl("w8a8_linear", TORCH_FN((NotDifferentiable<kW8a8Linear, w8a8_linear_reference>::call)));
}

}  // namespace
}  // namespace musa
