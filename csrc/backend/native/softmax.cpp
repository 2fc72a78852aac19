// aten::_softmax and _log_softmax over the last dimension, and their backward.
#include "mudnn/softmax.h"

#include <ATen/ops/_log_softmax_backward_data_cpu_dispatch.h>
#include <ATen/ops/_log_softmax_cpu_dispatch.h>
#include <ATen/ops/_softmax_backward_data_cpu_dispatch.h>
#include <ATen/ops/_softmax_cpu_dispatch.h>

#include "backend/native/kernels.h"
#include "backend/native/rows.h"
#include "backend/native/tensors.h"

namespace musa {
namespace {

using mudnn::SoftmaxKind;

bool is_last(const at::Tensor& x, int64_t dim) {
  return x.dim() >= 1 && (dim == -1 || dim == x.dim() - 1) && x.numel() > 0;
}

/// An undefined tensor when the kernel isn't made for the arguments.
at::Tensor forward(const at::Tensor& x, int64_t dim, bool half_to_float, SoftmaxKind kind) {
  const std::optional<mudnn::Dtype> dtype = mudnn_dtype(x.scalar_type());
  if (!dtype.has_value() || half_to_float || !is_last(x, dim)) {
    return {};
  }
  const at::Tensor rows = x.contiguous();
  at::Tensor out = fresh(x.sizes(), x.scalar_type());
  const int64_t columns = x.size(-1);
  mudnn::softmax(
      {.kind = kind,
       .dtype = *dtype,
       .rows = row_count(x, columns),
       .columns = columns,
       .x = rows.const_data_ptr(),
       .out = out.mutable_data_ptr()},
      torch_threads());
  return out;
}

at::Tensor backward(
    const at::Tensor& grad, const at::Tensor& out, int64_t dim, at::ScalarType input_dtype, SoftmaxKind kind) {
  const std::optional<mudnn::Dtype> dtype = mudnn_dtype(out.scalar_type());
  if (!dtype.has_value() || grad.scalar_type() != out.scalar_type() || input_dtype != out.scalar_type() ||
      grad.sizes() != out.sizes() || !is_last(out, dim)) {
    return {};
  }
  const at::Tensor grad_rows = grad.contiguous();
  const at::Tensor out_rows = out.contiguous();
  at::Tensor grad_x = fresh(out.sizes(), out.scalar_type());
  const int64_t columns = out.size(-1);
  mudnn::softmax_backward(
      {.kind = kind,
       .dtype = *dtype,
       .rows = row_count(out, columns),
       .columns = columns,
       .grad = grad_rows.const_data_ptr(),
       .out = out_rows.const_data_ptr(),
       .grad_x = grad_x.mutable_data_ptr()},
      torch_threads());
  return grad_x;
}

at::Tensor softmax(const at::Tensor& x, int64_t dim, bool half_to_float) {
  at::Tensor out = forward(x, dim, half_to_float, SoftmaxKind::kSoftmax);
  if (!out.defined()) {
    note_reference();
    return at::cpu::_softmax(x, dim, half_to_float);
  }
  return out;
}

at::Tensor log_softmax(const at::Tensor& x, int64_t dim, bool half_to_float) {
  at::Tensor out = forward(x, dim, half_to_float, SoftmaxKind::kLogSoftmax);
  if (!out.defined()) {
    note_reference();
    return at::cpu::_log_softmax(x, dim, half_to_float);
  }
  return out;
}

at::Tensor softmax_backward(const at::Tensor& grad, const at::Tensor& out, int64_t dim, at::ScalarType input_dtype) {
  at::Tensor grad_x = backward(grad, out, dim, input_dtype, SoftmaxKind::kSoftmax);
  if (!grad_x.defined()) {
    note_reference();
    return at::cpu::_softmax_backward_data(grad, out, dim, input_dtype);
  }
  return grad_x;
}

at::Tensor log_softmax_backward(
    const at::Tensor& grad, const at::Tensor& out, int64_t dim, at::ScalarType input_dtype) {
  at::Tensor grad_x = backward(grad, out, dim, input_dtype, SoftmaxKind::kLogSoftmax);
  if (!grad_x.defined()) {
    note_reference();
    return at::cpu::_log_softmax_backward_data(grad, out, dim, input_dtype);
  }
  return grad_x;
}

MUSA_NATIVE_KERNEL("aten::_softmax", softmax);
MUSA_NATIVE_KERNEL("aten::_log_softmax", log_softmax);
MUSA_NATIVE_KERNEL("aten::_softmax_backward_data", softmax_backward);
MUSA_NATIVE_KERNEL("aten::_log_softmax_backward_data", log_softmax_backward);

}  // namespace
}  // namespace musa
