// mm, bmm, addmm and baddbmm with a result wider than the operands (out_dtype), which PyTorch has for CUDA only: the
// sums stay in float32 and are not rounded to the operands' 16 bits.
#include <ATen/native/Resize.h>
#include <ATen/ops/add.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/mul.h>
#include <c10/util/SmallVector.h>
#include <torch/library.h>

#include "backend/bridge/flops.h"
#include "backend/bridge/host_view.h"
#include "backend/native/gemm.h"
#include "backend/native/kernels.h"
#include "backend/ops/devices.h"

namespace musa {
namespace {

using at::Scalar;
using at::Tensor;

struct Operator {
  const char* name;
  int64_t dim;
};
constexpr Operator kMm{"aten::mm.dtype", 2};
constexpr Operator kBmm{"aten::bmm.dtype", 3};
constexpr Operator kAddmm{"aten::addmm.dtype", 2};
constexpr Operator kBaddbmm{"aten::baddbmm.dtype", 3};

void check(const Operator& op, const Tensor& a, const Tensor& b, const Tensor* addend, at::ScalarType out_dtype) {
  TORCH_CHECK(
      a.dim() == op.dim && b.dim() == op.dim && a.size(-1) == b.size(-2) && (op.dim == 2 || a.size(0) == b.size(0)),
      op.name, " takes ", op.dim == 2 ? "[m, k] and [k, n]" : "[batch, m, k] and [batch, k, n]", ", got ", a.sizes(),
      " and ", b.sizes());
  TORCH_CHECK(
      a.scalar_type() == b.scalar_type(), op.name, " takes two operands of the same dtype, got ", a.scalar_type(),
      " and ", b.scalar_type());
  const bool widens = out_dtype == at::kFloat && (a.scalar_type() == at::kHalf || a.scalar_type() == at::kBFloat16);
  TORCH_CHECK(
      out_dtype == a.scalar_type() || widens, op.name,
      ": out_dtype must be the operands' dtype, or float32 for float16 and bfloat16; got ", out_dtype, " for ",
      a.scalar_type());
  TORCH_CHECK(
      addend == nullptr || addend->scalar_type() == a.scalar_type() || addend->scalar_type() == out_dtype, op.name,
      ": what is added must have the operands' dtype or out_dtype, got ", addend->scalar_type());
}

c10::SmallVector<int64_t, 3> result_sizes(const Tensor& a, const Tensor& b) {
  c10::SmallVector<int64_t, 3> sizes(a.sizes().begin(), a.sizes().end());
  sizes.back() = b.size(-1);
  return sizes;
}

// On host tensors. `out` may be undefined.
Tensor compute(
    const Operator& op, const Tensor& a, const Tensor& b, const Tensor* addend, const Scalar& beta, const Scalar& alpha,
    at::ScalarType out_dtype, const Tensor& out) {
  const Product product{a, b, addend, addend == nullptr ? 0.0f : beta.to<float>(), alpha.to<float>()};
  if (native_enabled(op.name) && can_multiply(product, out_dtype)) {
    if (!out.defined()) {
      return multiply(product, out_dtype);
    }
    multiply_into(product, out);
    return out;
  }
  Tensor result = at::matmul(a.to(out_dtype), b.to(out_dtype));
  if (addend != nullptr) {
    result = at::mul(result, alpha);
    if (beta.toDouble() != 0) {
      result = at::add(result, addend->to(out_dtype), beta);
    }
  }
  if (out.defined()) {
    out.copy_(result);
  }
  return result;
}

Tensor run(
    const Operator& op, const Tensor* addend, const Tensor& a, const Tensor& b, at::ScalarType out_dtype,
    const Scalar& beta, const Scalar& alpha, Tensor* out) {
  check(op, a, b, addend, out_dtype);
  if (out != nullptr) {
    TORCH_CHECK(
        out->scalar_type() == out_dtype, op.name, ": out has dtype ", out->scalar_type(), ", out_dtype is ", out_dtype);
    at::native::resize_output(*out, result_sizes(a, b));
  }
  CardScope scope(
      common_device(
          op.name,
          {{"self", addend == nullptr ? a : *addend}, {"mat1", a}, {"mat2", b}, {"out", out == nullptr ? a : *out}}),
      op.name);
  const Tensor shown_a = scope.view(a);
  const Tensor shown_b = scope.view(b);
  Tensor shown_addend;
  if (addend != nullptr) {
    shown_addend = scope.view(*addend);
  }
  const Tensor shown_out = out == nullptr ? Tensor() : scope.written(*out);
  const Tensor result =
      compute(op, shown_a, shown_b, addend == nullptr ? nullptr : &shown_addend, beta, alpha, out_dtype, shown_out);
  const double batch = op.dim == 3 ? static_cast<double>(a.size(0)) : 1;
  scope.set_cost(batch * mm_flops(a.size(-2), b.size(-1), a.size(-1)), cost_dtype(a.scalar_type()));
  return out == nullptr ? scope.result(result) : *out;
}

template <const Operator& op>
Tensor product(const Tensor& a, const Tensor& b, at::ScalarType out_dtype) {
  return run(op, nullptr, a, b, out_dtype, 1, 1, nullptr);
}

template <const Operator& op>
Tensor& product_out(const Tensor& a, const Tensor& b, at::ScalarType out_dtype, Tensor& out) {
  run(op, nullptr, a, b, out_dtype, 1, 1, &out);
  return out;
}

template <const Operator& op>
Tensor add_product(
    const Tensor& self, const Tensor& a, const Tensor& b, at::ScalarType out_dtype, const Scalar& beta,
    const Scalar& alpha) {
  return run(op, &self, a, b, out_dtype, beta, alpha, nullptr);
}

template <const Operator& op>
Tensor& add_product_out(
    const Tensor& self, const Tensor& a, const Tensor& b, at::ScalarType out_dtype, const Scalar& beta,
    const Scalar& alpha, Tensor& out) {
  run(op, &self, a, b, out_dtype, beta, alpha, &out);
  return out;
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, library) {
  library.impl("mm.dtype", &product<kMm>);
  library.impl("mm.dtype_out", &product_out<kMm>);
  library.impl("bmm.dtype", &product<kBmm>);
  library.impl("bmm.dtype_out", &product_out<kBmm>);
  library.impl("addmm.dtype", &add_product<kAddmm>);
  library.impl("addmm.dtype_out", &add_product_out<kAddmm>);
  library.impl("baddbmm.dtype", &add_product<kBaddbmm>);
  library.impl("baddbmm.dtype_out", &add_product_out<kBaddbmm>);
}

}  // namespace
}  // namespace musa
