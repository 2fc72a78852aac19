// tril and triu into a given tensor. torch's CPU kernel writes out of bounds when that tensor is a batch with permuted
// strides, which would hit other tensors' memory on the card: the result is made first and copied.
#include <ATen/core/Tensor.h>
#include <ATen/native/Resize.h>
#include <ATen/ops/tril.h>
#include <ATen/ops/triu.h>
#include <torch/library.h>

#include "backend/bridge/host_view.h"
#include "backend/ops/devices.h"

namespace musa {
namespace {

using Kernel = at::Tensor (*)(const at::Tensor&, int64_t);

at::Tensor& into(const char* op, Kernel kernel, const at::Tensor& self, int64_t diagonal, at::Tensor& out) {
  CardScope scope(common_device(op, {{"self", self}, {"out", out}}), op);
  TORCH_CHECK(
      self.scalar_type() == out.scalar_type(), "Expected out tensor to have dtype ", self.dtype(), ", but got ",
      out.dtype(), " instead");
  const at::Tensor result = kernel(scope.view(self), diagonal);
  at::native::resize_output(out, result.sizes());
  scope.written(out).copy_(result);
  return out;
}

at::Tensor& tril_out(const at::Tensor& self, int64_t diagonal, at::Tensor& out) {
  return into("aten::tril", &at::tril, self, diagonal, out);
}

at::Tensor& triu_out(const at::Tensor& self, int64_t diagonal, at::Tensor& out) {
  return into("aten::triu", &at::triu, self, diagonal, out);
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, library) {
  library.impl("tril.out", &tril_out);
  library.impl("triu.out", &triu_out);
}

}  // namespace
}  // namespace musa
