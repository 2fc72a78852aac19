// Grouped matrix product: torch's composite copies the offsets to the host and runs one product per group; on a card
// it is one kernel that reads them itself.
#include <torch/library.h>

#include "backend/bridge/flops.h"
#include "backend/bridge/host_view.h"
#include "backend/native/grouped_mm.h"
#include "backend/ops/devices.h"

namespace musa {
namespace {

/// Operations of all groups; only the rows (or, with two 2-d operands, the depth) below the last offset count.
double grouped_flops(const at::Tensor& self, const at::Tensor& mat2, const at::Tensor& offsets) {
  const int64_t m = self.size(-2);
  const int64_t n = mat2.size(-1);
  const int64_t k = self.size(-1);
  if (!offsets.defined() || offsets.numel() == 0) {
    return static_cast<double>(self.dim() == 3 ? self.size(0) : 1) * mm_flops(m, n, k);
  }
  const int64_t used = offsets.select(0, offsets.numel() - 1).item<int64_t>();
  if (self.dim() == 2 && mat2.dim() == 2) {
    return mm_flops(m, n, used);
  }
  return self.dim() == 2 ? mm_flops(used, n, k) : mm_flops(m, used, k);
}

at::Tensor grouped_mm(
    const at::Tensor& self, const at::Tensor& mat2, const std::optional<at::Tensor>& offs,
    const std::optional<at::Tensor>& bias, std::optional<at::ScalarType> out_dtype) {
  constexpr const char* kOp = "aten::_grouped_mm";
  CardScope scope(
      common_device(kOp, {{"self", self}, {"mat2", mat2}, {"offs", or_undefined(offs)}, {"bias", or_undefined(bias)}}),
      kOp);
  const std::optional<at::Tensor> offsets = scope.view(offs);
  const at::Tensor output =
      grouped_mm_on_host(scope.view(self), scope.view(mat2), offsets, scope.view(bias), out_dtype);
  scope.set_cost(grouped_flops(self, mat2, or_undefined(offsets)), cost_dtype(self.scalar_type()));
  return scope.result(output);
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, library) { library.impl("_grouped_mm", TORCH_FN(grouped_mm)); }

}  // namespace
}  // namespace musa
