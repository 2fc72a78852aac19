// musa::silu_and_mul, gelu_and_mul, situ_and_mul; aten::silu and aten::gelu.
#include "mudnn/glu.h"

#include <ATen/EmptyTensor.h>
#include <ATen/OpMathType.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/gelu.h>
#include <ATen/ops/gelu_cpu_dispatch.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/sigmoid.h>
#include <ATen/ops/silu.h>
#include <ATen/ops/silu_cpu_dispatch.h>
#include <ATen/ops/tanh.h>
#include <torch/library.h>

#include "backend/native/differentiable.h"
#include "backend/native/kernels.h"
#include "backend/native/rows.h"
#include "backend/native/tensors.h"

namespace musa {
namespace {

using mudnn::Activation;

std::vector<c10::SymInt> half_sizes(const at::Tensor& x, const char* op) {
  TORCH_CHECK(
      x.dim() >= 1 && x.sym_size(-1) % 2 == 0, op, " takes x of shape [..., 2 * n] (gate, then up), got ",
      x.sym_sizes());
  std::vector<c10::SymInt> sizes = x.sym_sizes().vec();
  sizes.back() = sizes.back() / 2;
  return sizes;
}

Activation gelu_kind(c10::string_view approximate, const char* op) {
  TORCH_CHECK(
      approximate == "none" || approximate == "tanh", op, " takes approximate='none' or 'tanh', got '", approximate,
      "'");
  return approximate == "tanh" ? Activation::kGeluTanh : Activation::kGeluErf;
}

void check_betas(double beta, double linear_beta) {
  TORCH_CHECK(
      beta > 0 && linear_beta > 0, "situ_and_mul takes positive beta and linear_beta, got ", beta, " and ",
      linear_beta);
}

at::Tensor gate_of(const at::Tensor& x) { return x.narrow_symint(-1, 0, x.sym_size(-1) / 2); }
at::Tensor up_of(const at::Tensor& x) { return x.narrow_symint(-1, x.sym_size(-1) / 2, x.sym_size(-1) / 2); }

at::Tensor silu_and_mul_reference(const at::Tensor& x) {
  (void)half_sizes(x, "silu_and_mul");
  return at::mul(at::silu(gate_of(x)), up_of(x));
}

at::Tensor gelu_and_mul_reference(const at::Tensor& x, c10::string_view approximate) {
  (void)gelu_kind(approximate, "gelu_and_mul");
  (void)half_sizes(x, "gelu_and_mul");
  return at::mul(at::gelu(gate_of(x), approximate), up_of(x));
}

at::Tensor situ_and_mul_reference(const at::Tensor& x, double beta, double linear_beta) {
  check_betas(beta, linear_beta);
  (void)half_sizes(x, "situ_and_mul");
  const at::ScalarType wide = at::toOpMathType(x.scalar_type());
  const at::Tensor gate = gate_of(x).to(wide);
  const at::Tensor squashed = at::tanh(gate / beta) * beta * at::sigmoid(gate);
  return (squashed * (at::tanh(up_of(x).to(wide) / linear_beta) * linear_beta)).to(x.scalar_type());
}

at::Tensor silu_and_mul_meta(const at::Tensor& x) {
  return at::empty_symint(half_sizes(x, "silu_and_mul"), x.options());
}
at::Tensor gelu_and_mul_meta(const at::Tensor& x, c10::string_view approximate) {
  (void)gelu_kind(approximate, "gelu_and_mul");
  return at::empty_symint(half_sizes(x, "gelu_and_mul"), x.options());
}
at::Tensor situ_and_mul_meta(const at::Tensor& x, double beta, double linear_beta) {
  check_betas(beta, linear_beta);
  return at::empty_symint(half_sizes(x, "situ_and_mul"), x.options());
}

/// activation(gate) * up of the halves of x; an undefined tensor when the kernel isn't made for x.
at::Tensor gated(const at::Tensor& x, Activation activation, const char* op, double beta = 1, double linear_beta = 1) {
  TORCH_CHECK(
      x.dim() >= 1 && x.size(-1) % 2 == 0, op, " takes x of shape [..., 2 * n] (gate, then up), got ", x.sizes());
  const std::optional<mudnn::Dtype> dtype = mudnn_dtype(x.scalar_type());
  if (!dtype.has_value()) {
    return {};
  }
  c10::SmallVector<int64_t, 6> sizes(x.sizes().begin(), x.sizes().end());
  const int64_t n = sizes.back() / 2;
  sizes.back() = n;
  at::Tensor out = fresh(sizes, x.scalar_type());
  at::Tensor keep;
  const mudnn::ConstRows gate = rows_or_copy(x, keep);
  mudnn::ConstRows up = gate;
  up.data = static_cast<const char*>(gate.data) + n * static_cast<int64_t>(x.itemsize());
  mudnn::activate(
      {.activation = activation,
       .dtype = *dtype,
       .rows = row_count(out, n),
       .columns = n,
       .gate = gate,
       .up = up,
       .out = contiguous_rows(out),
       .beta = static_cast<float>(beta),
       .linear_beta = static_cast<float>(linear_beta)},
      torch_threads());
  return out;
}

at::Tensor silu_and_mul(const at::Tensor& x) {
  at::Tensor out = gated(x, Activation::kSilu, "silu_and_mul");
  if (!out.defined()) {
    note_reference();
    return silu_and_mul_reference(x);
  }
  return out;
}

at::Tensor gelu_and_mul(const at::Tensor& x, c10::string_view approximate) {
  at::Tensor out = gated(x, gelu_kind(approximate, "gelu_and_mul"), "gelu_and_mul");
  if (!out.defined()) {
    note_reference();
    return gelu_and_mul_reference(x, approximate);
  }
  return out;
}

at::Tensor situ_and_mul(const at::Tensor& x, double beta, double linear_beta) {
  check_betas(beta, linear_beta);
  at::Tensor out = gated(x, Activation::kSitu, "situ_and_mul", beta, linear_beta);
  if (!out.defined()) {
    note_reference();
    return situ_and_mul_reference(x, beta, linear_beta);
  }
  return out;
}

/// activation(x) with the strides of x; an undefined tensor when the kernel isn't made for x.
at::Tensor elementwise(const at::Tensor& x, Activation activation) {
  constexpr int64_t kRow = 4096;
  const std::optional<mudnn::Dtype> dtype = mudnn_dtype(x.scalar_type());
  if (!dtype.has_value() || !x.is_non_overlapping_and_dense()) {
    return {};
  }
  at::Tensor out = at::detail::empty_strided_cpu(x.sizes(), x.strides(), x.scalar_type());
  const int64_t count = x.numel();
  const auto run = [&](int64_t first, int64_t rows, int64_t columns) {
    const int64_t offset = first * static_cast<int64_t>(x.itemsize());
    mudnn::activate(
        {.activation = activation,
         .dtype = *dtype,
         .rows = rows,
         .columns = columns,
         .gate = {static_cast<const char*>(x.const_data_ptr()) + offset, columns},
         .up = {},
         .out = {static_cast<char*>(out.mutable_data_ptr()) + offset, columns},
         .beta = 1,
         .linear_beta = 1},
        torch_threads());
  };
  const int64_t whole = count / kRow;
  if (whole > 0) {
    run(0, whole, kRow);
  }
  if (count % kRow != 0) {
    run(whole * kRow, 1, count % kRow);
  }
  return out;
}

at::Tensor silu(const at::Tensor& x) {
  at::Tensor out = elementwise(x, Activation::kSilu);
  if (!out.defined()) {
    note_reference();
    return at::cpu::silu(x);
  }
  return out;
}

at::Tensor gelu(const at::Tensor& x, c10::string_view approximate) {
  at::Tensor out;
  if (approximate == "none" || approximate == "tanh") {
    out = elementwise(x, approximate == "tanh" ? Activation::kGeluTanh : Activation::kGeluErf);
  }
  if (!out.defined()) {
    note_reference();
    return at::cpu::gelu(x, approximate);
  }
  return out;
}

constexpr char kSiluAndMul[] = "musa::silu_and_mul";
constexpr char kGeluAndMul[] = "musa::gelu_and_mul";
constexpr char kSituAndMul[] = "musa::situ_and_mul";

MUSA_NATIVE_KERNEL(kSiluAndMul, silu_and_mul);
MUSA_NATIVE_KERNEL(kGeluAndMul, gelu_and_mul);
MUSA_NATIVE_KERNEL(kSituAndMul, situ_and_mul);
MUSA_NATIVE_KERNEL("aten::silu", silu);
MUSA_NATIVE_KERNEL("aten::gelu", gelu);

TORCH_LIBRARY_FRAGMENT(musa, library) {
  library.def("silu_and_mul(Tensor x) -> Tensor");
  library.def("gelu_and_mul(Tensor x, str approximate='none') -> Tensor");
  library.def("situ_and_mul(Tensor x, float beta, float linear_beta) -> Tensor");
}

TORCH_LIBRARY_IMPL(musa, CPU, library) {
  library.impl("silu_and_mul", TORCH_FN(silu_and_mul_reference));
  library.impl("gelu_and_mul", TORCH_FN(gelu_and_mul_reference));
  library.impl("situ_and_mul", TORCH_FN(situ_and_mul_reference));
}

TORCH_LIBRARY_IMPL(musa, Meta, library) {
  library.impl("silu_and_mul", TORCH_FN(silu_and_mul_meta));
  library.impl("gelu_and_mul", TORCH_FN(gelu_and_mul_meta));
  library.impl("situ_and_mul", TORCH_FN(situ_and_mul_meta));
}

TORCH_LIBRARY_IMPL(musa, Autograd, library) {
  library.impl("silu_and_mul", TORCH_FN((Differentiable<kSiluAndMul, silu_and_mul_reference>::call)));
  library.impl("gelu_and_mul", TORCH_FN((Differentiable<kGeluAndMul, gelu_and_mul_reference>::call)));
  library.impl("situ_and_mul", TORCH_FN((Differentiable<kSituAndMul, situ_and_mul_reference>::call)));
}

}  // namespace
}  // namespace musa
