// aten::native_layer_norm, aten::_fused_rms_norm (which F.rms_norm reaches) and its backward.
#include "backend/native/norm.h"

#include <ATen/TensorOperators.h>
#include <ATen/native/layer_norm.h>
#include <ATen/ops/_fused_rms_norm.h>
#include <ATen/ops/native_layer_norm_cpu_dispatch.h>
#include <ATen/ops/sum.h>
#include <c10/util/SmallVector.h>
#include <torch/library.h>

#include <limits>

#include "backend/native/kernels.h"
#include "backend/native/rows.h"
#include "backend/native/tensors.h"
#include "backend/ops/devices.h"
#include "mudnn/norm.h"

namespace musa {

std::optional<NormDtypes> norm_dtypes(const at::Tensor& x, const at::Tensor& weight) {
  const std::optional<mudnn::Dtype> rows = mudnn_dtype(x.scalar_type());
  if (!rows.has_value()) {
    return std::nullopt;
  }
  if (!weight.defined() || weight.scalar_type() == x.scalar_type()) {
    return NormDtypes{*rows, *rows};
  }
  if (weight.scalar_type() == at::kFloat) {
    return NormDtypes{*rows, mudnn::Dtype::kFloat32};
  }
  return std::nullopt;
}

namespace {

/// Keeps a contiguous form of an optional tensor and gives its address.
class Contiguous {
 public:
  explicit Contiguous(const at::Tensor& tensor) : tensor_(tensor.defined() ? tensor.contiguous() : tensor) {}
  const void* data() const { return tensor_.defined() ? tensor_.const_data_ptr() : nullptr; }

 private:
  at::Tensor tensor_;
};

/// Sizes of one number for each normalised part of `input`: the normalised dimensions have size 1.
c10::SmallVector<int64_t, 6> statistics_sizes(const at::Tensor& input, size_t normalized_dims) {
  c10::SmallVector<int64_t, 6> sizes(input.sizes().begin(), input.sizes().end());
  for (size_t i = sizes.size() - normalized_dims; i < sizes.size(); ++i) {
    sizes[i] = 1;
  }
  return sizes;
}

}  // namespace

std::tuple<at::Tensor, at::Tensor, at::Tensor> native_layer_norm_kernel(
    const at::Tensor& input, at::IntArrayRef normalized_shape, const std::optional<at::Tensor>& weight_or_none,
    const std::optional<at::Tensor>& bias_or_none, double eps) {
  const at::Tensor& weight = or_undefined(weight_or_none);
  const at::Tensor& bias = or_undefined(bias_or_none);
  const auto [rows, columns] = at::native::_check_layer_norm_inputs(input, normalized_shape, weight, bias);
  const std::optional<NormDtypes> dtypes = norm_dtypes(input, weight.defined() ? weight : bias);
  const bool same = !weight.defined() || !bias.defined() || weight.scalar_type() == bias.scalar_type();
  if (!dtypes.has_value() || !same || rows == 0 || columns == 0) {
    note_reference();
    return at::cpu::native_layer_norm(input, normalized_shape, weight_or_none, bias_or_none, eps);
  }
  const Contiguous x(input);
  const Contiguous scale(weight);
  const Contiguous shift(bias);
  at::Tensor out = fresh(input.sizes(), input.scalar_type());
  const at::ScalarType statistics = dtypes->rows == dtypes->weight ? input.scalar_type() : at::kFloat;
  const auto sizes = statistics_sizes(input, normalized_shape.size());
  at::Tensor mean = fresh(sizes, statistics);
  at::Tensor rstd = fresh(sizes, statistics);
  mudnn::layer_norm(
      {.dtype = dtypes->rows,
       .weight_dtype = dtypes->weight,
       .rows = rows,
       .columns = columns,
       .x = {x.data(), columns},
       .weight = scale.data(),
       .bias = shift.data(),
       .eps = eps,
       .out = {out.mutable_data_ptr(), columns},
       .statistics_dtype = *mudnn_dtype(statistics),
       .mean = mean.mutable_data_ptr(),
       .rstd = rstd.mutable_data_ptr()},
      torch_threads());
  return {std::move(out), std::move(mean), std::move(rstd)};
}

namespace {

std::tuple<at::Tensor, at::Tensor> fused_rms_norm(
    const at::Tensor& input, at::IntArrayRef normalized_shape, const std::optional<at::Tensor>& weight_or_none,
    std::optional<double> eps) {
  const at::Tensor& weight = or_undefined(weight_or_none);
  const auto [rows, columns] = at::native::_check_layer_norm_inputs(input, normalized_shape, weight, {});
  const std::optional<NormDtypes> dtypes = norm_dtypes(input, weight);
  if (!dtypes.has_value() || rows == 0 || columns == 0) {
    note_reference();
    return at::_fused_rms_norm(input, normalized_shape, weight_or_none, eps);
  }
  const Contiguous x(input);
  const Contiguous scale(weight);
  at::Tensor out = fresh(input.sizes(), input.scalar_type());
  at::Tensor rstd = fresh(statistics_sizes(input, normalized_shape.size()), at::kFloat);
  mudnn::rms_norm(
      {.dtype = dtypes->rows,
       .weight_dtype = dtypes->weight,
       .rows = rows,
       .columns = columns,
       .x = {x.data(), columns},
       .weight = scale.data(),
       .eps = eps.value_or(std::numeric_limits<float>::epsilon()),
       .out = {out.mutable_data_ptr(), columns},
       .rstd = rstd.mutable_data_ptr()},
      torch_threads());
  return {std::move(out), std::move(rstd)};
}

/// The formula of mudnn::rms_norm_backward.
std::tuple<at::Tensor, at::Tensor> fused_rms_norm_backward_reference(
    const at::Tensor& grad, const at::Tensor& input, at::IntArrayRef normalized_shape, const at::Tensor& rstd,
    const std::optional<at::Tensor>& weight_or_none, std::array<bool, 2> wanted) {
  const at::Tensor& weight = or_undefined(weight_or_none);
  const at::ScalarType type = rstd.scalar_type();
  const at::Tensor g = grad.to(type);
  const at::Tensor normed = input.to(type) * rstd;
  const auto kept = static_cast<int64_t>(input.dim() - static_cast<int64_t>(normalized_shape.size()));
  std::vector<int64_t> outer;
  std::vector<int64_t> inner;
  for (int64_t dim = 0; dim < input.dim(); ++dim) {
    (dim < kept ? outer : inner).push_back(dim);
  }
  at::Tensor grad_input;
  at::Tensor grad_weight;
  if (wanted[0]) {
    const at::Tensor weighted = weight.defined() ? g * weight.to(type) : g;
    const at::Tensor projection = at::sum(weighted * normed, inner, /*keepdim=*/true) /
        static_cast<double>(std::max<int64_t>(1, c10::multiply_integers(normalized_shape)));
    grad_input = ((weighted - normed * projection) * rstd).to(input.scalar_type());
  }
  if (wanted[1] && weight.defined()) {
    const at::Tensor each = g * normed;
    grad_weight = (outer.empty() ? each : at::sum(each, outer)).to(weight.scalar_type());
  }
  return {std::move(grad_input), std::move(grad_weight)};
}

std::tuple<at::Tensor, at::Tensor> fused_rms_norm_backward(
    const at::Tensor& grad, const at::Tensor& input, at::IntArrayRef normalized_shape, const at::Tensor& rstd,
    const std::optional<at::Tensor>& weight_or_none, std::array<bool, 2> wanted) {
  const at::Tensor& weight = or_undefined(weight_or_none);
  const auto [rows, columns] = at::native::_check_layer_norm_inputs(input, normalized_shape, weight, {});
  const std::optional<NormDtypes> dtypes = norm_dtypes(input, weight);
  if (!dtypes.has_value() || rows == 0 || columns == 0 || grad.scalar_type() != input.scalar_type() ||
      rstd.scalar_type() != at::kFloat) {
    note_reference();
    return fused_rms_norm_backward_reference(grad, input, normalized_shape, rstd, weight_or_none, wanted);
  }
  const Contiguous g(grad);
  const Contiguous x(input);
  const Contiguous scale(weight);
  const Contiguous statistics(rstd);
  at::Tensor grad_input;
  at::Tensor grad_weight;
  at::Tensor partial;
  if (wanted[0]) {
    grad_input = fresh(input.sizes(), input.scalar_type());
  }
  if (wanted[1] && weight.defined()) {
    grad_weight = fresh(weight.sizes(), weight.scalar_type());
    partial = fresh({mudnn::rms_norm_partials(rows), columns}, at::kFloat);
  }
  mudnn::rms_norm_backward(
      {.dtype = dtypes->rows,
       .weight_dtype = dtypes->weight,
       .rows = rows,
       .columns = columns,
       .grad = g.data(),
       .x = x.data(),
       .rstd = static_cast<const float*>(statistics.data()),
       .weight = scale.data(),
       .grad_x = grad_input.defined() ? grad_input.mutable_data_ptr() : nullptr,
       .grad_weight = grad_weight.defined() ? grad_weight.mutable_data_ptr() : nullptr,
       .partial = partial.defined() ? partial.mutable_data_ptr<float>() : nullptr},
      torch_threads());
  return {std::move(grad_input), std::move(grad_weight)};
}

MUSA_NATIVE_KERNEL("aten::native_layer_norm", native_layer_norm_kernel);
MUSA_NATIVE_KERNEL("aten::_fused_rms_norm", fused_rms_norm);
MUSA_NATIVE_KERNEL("aten::_fused_rms_norm_backward", fused_rms_norm_backward);

// PyTorch has none for the CPU, where F.rms_norm is a composition of other operators.
TORCH_LIBRARY_IMPL(aten, CPU, library) {
  library.impl("_fused_rms_norm_backward", TORCH_FN(fused_rms_norm_backward_reference));
}

}  // namespace
}  // namespace musa
