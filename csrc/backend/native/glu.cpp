// musa::silu_and_mul.
#include "mudnn/glu.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/silu.h>
#include <torch/library.h>

#include "backend/native/kernels.h"
#include "backend/native/tensors.h"

namespace musa {
namespace {

std::vector<c10::SymInt> half_sizes(const at::Tensor& x, const char* op) {
  TORCH_CHECK(
      x.dim() >= 1 && x.sym_size(-1) % 2 == 0, op, " takes x of shape [..., 2 * n] (gate, then up), got ",
      x.sym_sizes());
  std::vector<c10::SymInt> sizes = x.sym_sizes().vec();
  sizes.back() = sizes.back() / 2;
  return sizes;
}

at::Tensor silu_and_mul_meta(const at::Tensor& x) {
  return at::empty_symint(half_sizes(x, "silu_and_mul"), x.options());
}

at::Tensor silu_and_mul_reference(const at::Tensor& x) {
  (void)half_sizes(x, "silu_and_mul");
  const int64_t n = x.size(-1) / 2;
  return at::mul(at::silu(x.narrow(-1, 0, n)), x.narrow(-1, n, n));
}

at::Tensor silu_and_mul(const at::Tensor& x) {
  const std::optional<mudnn::Dtype> dtype = mudnn_dtype(x.scalar_type());
  if (!dtype.has_value()) {
    note_reference();
    return silu_and_mul_reference(x);
  }
  at::Tensor out = silu_and_mul_meta(x);
  const at::Tensor rows = x.contiguous();
  const int64_t n = out.size(-1);
  const char* gate = static_cast<const char*>(rows.const_data_ptr());
  mudnn::silu_and_mul(
      {.dtype = *dtype,
       .rows = n == 0 ? 0 : out.numel() / n,
       .columns = n,
       .gate = gate,
       .gate_stride = 2 * n,
       .up = gate + n * static_cast<int64_t>(x.itemsize()),
       .up_stride = 2 * n,
       .out = out.mutable_data_ptr(),
       .out_stride = n},
      torch_threads());
  return out;
}

MUSA_NATIVE_KERNEL("musa::silu_and_mul", silu_and_mul);

TORCH_LIBRARY_FRAGMENT(musa, library) { library.def("silu_and_mul(Tensor x) -> Tensor"); }
TORCH_LIBRARY_IMPL(musa, Meta, library) { library.impl("silu_and_mul", TORCH_FN(silu_and_mul_meta)); }
TORCH_LIBRARY_IMPL(musa, CPU, library) { library.impl("silu_and_mul", TORCH_FN(silu_and_mul_reference)); }

}  // namespace
}  // namespace musa
