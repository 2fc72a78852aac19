// aten::mm, addmm, bmm, baddbmm with their out= and in-place forms.
#include "backend/native/mm.h"

#include <ATen/MemoryOverlap.h>
#include <ATen/native/Resize.h>
#include <ATen/ops/addmm_cpu_dispatch.h>
#include <ATen/ops/baddbmm_cpu_dispatch.h>
#include <ATen/ops/bmm_cpu_dispatch.h>
#include <ATen/ops/mm_cpu_dispatch.h>

#include "backend/native/gemm.h"
#include "backend/native/kernels.h"

namespace musa {
namespace {

using at::Scalar;
using at::Tensor;

// Whether the kernels take the product into a result of a's dtype; `dim`: of a and b. What they don't take, wrong calls
// among it, goes to the CPU kernel.
bool takes(const Product& product, int64_t dim) {
  return product.a.dim() == dim && can_multiply(product, product.a.scalar_type()) &&
      (product.addend == nullptr || product.addend->scalar_type() == product.a.scalar_type());
}

bool are_real(const Scalar& beta, const Scalar& alpha) { return !beta.isComplex() && !alpha.isComplex(); }

Product product_of(const Tensor& addend, const Tensor& a, const Tensor& b, const Scalar& beta, const Scalar& alpha) {
  return {a, b, &addend, static_cast<float>(beta.toDouble()), static_cast<float>(alpha.toDouble())};
}

Tensor& into(const Product& product, Tensor& out) {
  c10::SmallVector<int64_t, 3> sizes(product.a.sizes().begin(), product.a.sizes().end());
  sizes.back() = product.b.size(-1);
  at::native::resize_output(out, sizes);
  at::assert_no_internal_overlap(out);
  multiply_into(product, out);
  return out;
}

// Forms of an operator that adds, for 2 or 3 dimensions. kCpu: the CPU kernels of the three forms.
template <int64_t kDim, auto kCpu>
Tensor add_product(const Tensor& self, const Tensor& a, const Tensor& b, const Scalar& beta, const Scalar& alpha) {
  if (are_real(beta, alpha)) {
    const Product product = product_of(self, a, b, beta, alpha);
    if (takes(product, kDim)) {
      return multiply(product, a.scalar_type());
    }
  }
  note_reference();
  return kCpu(self, a, b, beta, alpha);
}

template <int64_t kDim, auto kCpu>
Tensor& add_product_out(
    const Tensor& self, const Tensor& a, const Tensor& b, const Scalar& beta, const Scalar& alpha, Tensor& out) {
  if (are_real(beta, alpha)) {
    const Product product = product_of(self, a, b, beta, alpha);
    if (out.scalar_type() == a.scalar_type() && takes(product, kDim)) {
      return into(product, out);
    }
  }
  note_reference();
  return kCpu(self, a, b, beta, alpha, out);
}

template <int64_t kDim, auto kCpu>
Tensor& add_product_(Tensor& self, const Tensor& a, const Tensor& b, const Scalar& beta, const Scalar& alpha) {
  if (are_real(beta, alpha)) {
    const Product product = product_of(self, a, b, beta, alpha);
    if (takes(product, kDim) && self.dim() == kDim && self.size(-2) == a.size(-2) && self.size(-1) == b.size(-1) &&
        self.size(0) == a.size(0)) {
      return into(product, self);
    }
  }
  note_reference();
  return kCpu(self, a, b, beta, alpha);
}

template <int64_t kDim, auto kCpu>
Tensor product(const Tensor& a, const Tensor& b) {
  const Product product{a, b};
  if (takes(product, kDim)) {
    return multiply(product, a.scalar_type());
  }
  note_reference();
  return kCpu(a, b);
}

template <int64_t kDim, auto kCpu>
Tensor& product_out(const Tensor& a, const Tensor& b, Tensor& out) {
  const Product product{a, b};
  if (out.scalar_type() == a.scalar_type() && takes(product, kDim)) {
    return into(product, out);
  }
  note_reference();
  return kCpu(a, b, out);
}

}  // namespace

at::Tensor mm_on_host(const at::Tensor& a, const at::Tensor& b) { return product<2, at::cpu::mm>(a, b); }

namespace {

MUSA_NATIVE_KERNEL("aten::mm", &mm_on_host);
MUSA_NATIVE_KERNEL("aten::mm.out", &product_out<2, at::cpu::mm_outf>);
MUSA_NATIVE_KERNEL("aten::bmm", &product<3, at::cpu::bmm>);
MUSA_NATIVE_KERNEL("aten::bmm.out", &product_out<3, at::cpu::bmm_outf>);
MUSA_NATIVE_KERNEL("aten::addmm", &add_product<2, at::cpu::addmm>);
MUSA_NATIVE_KERNEL("aten::addmm.out", &add_product_out<2, at::cpu::addmm_outf>);
MUSA_NATIVE_KERNEL("aten::addmm_", &add_product_<2, at::cpu::addmm_>);
MUSA_NATIVE_KERNEL("aten::baddbmm", &add_product<3, at::cpu::baddbmm>);
MUSA_NATIVE_KERNEL("aten::baddbmm.out", &add_product_out<3, at::cpu::baddbmm_outf>);
MUSA_NATIVE_KERNEL("aten::baddbmm_", &add_product_<3, at::cpu::baddbmm_>);

}  // namespace
}  // namespace musa
