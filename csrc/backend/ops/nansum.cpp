// nansum of complex numbers, which CUDA has and the CPU kernel refuses: NaN parts count as zero elements.
#include <ATen/core/Tensor.h>
#include <ATen/native/Resize.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/isnan.h>
#include <ATen/ops/nansum.h>
#include <ATen/ops/sum.h>
#include <torch/library.h>

#include "backend/bridge/host_view.h"
#include "backend/ops/devices.h"

namespace musa {
namespace {

constexpr const char* kOp = "aten::nansum";

at::Tensor sum_on_host(
    const at::Tensor& x, at::OptionalIntArrayRef dim, bool keepdim, std::optional<at::ScalarType> dtype) {
  return x.is_complex() ? x.masked_fill(at::isnan(x), 0).sum(dim, keepdim, dtype) : at::nansum(x, dim, keepdim, dtype);
}

at::Tensor complex_aware_nansum(
    const at::Tensor& self, at::OptionalIntArrayRef dim, bool keepdim, std::optional<at::ScalarType> dtype) {
  CardScope scope(self.device(), kOp);
  return scope.result(sum_on_host(scope.view(self), dim, keepdim, dtype));
}

at::Tensor& nansum_out(
    const at::Tensor& self, at::OptionalIntArrayRef dim, bool keepdim, std::optional<at::ScalarType> dtype,
    at::Tensor& out) {
  CardScope scope(common_device(kOp, {{"self", self}, {"out", out}}), kOp);
  const at::Tensor x = scope.view(self);
  at::Tensor result = at::empty({0}, out.options().device(at::kCPU));  // in card memory, for the kernel to resize
  if (self.is_complex()) {
    at::sum_out(result, x.masked_fill(at::isnan(x), 0), dim, keepdim, dtype);
  } else {
    at::nansum_out(result, x, dim, keepdim, dtype);
  }
  at::native::resize_output(out, result.sizes());
  scope.written(out).copy_(result);
  return out;
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, library) {
  library.impl("nansum", &complex_aware_nansum);
  library.impl("nansum.out", &nansum_out);
}

}  // namespace
}  // namespace musa
