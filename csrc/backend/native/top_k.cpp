// aten::topk for rows whose best few are wanted, as routers and samplers do.
#include <ATen/ops/empty.h>
#include <ATen/ops/topk.h>

#include "backend/native/kernels.h"
#include "backend/native/tensors.h"
#include "mudnn/routing.h"

namespace musa {
namespace {

constexpr int64_t kMostWanted = 64;

std::tuple<at::Tensor, at::Tensor> topk(const at::Tensor& self, int64_t k, int64_t dim, bool largest, bool sorted) {
  const std::optional<mudnn::Dtype> dtype = mudnn_dtype(self.scalar_type());
  const bool last = self.dim() >= 1 && (dim == -1 || dim == self.dim() - 1);
  if (!dtype.has_value() || !last || !largest || k < 1 || k > kMostWanted || k > self.size(-1) ||
      self.size(-1) > std::numeric_limits<int32_t>::max()) {
    note_reference();
    return at::topk(self, k, dim, largest, sorted);
  }
  std::vector<int64_t> sizes = self.sizes().vec();
  sizes.back() = k;
  at::Tensor values = at::empty(sizes, self.options());
  at::Tensor indices = at::empty(sizes, self.options().dtype(at::kLong));
  const at::Tensor rows = self.contiguous();
  const int64_t columns = rows.size(-1);
  mudnn::top_k(
      {.dtype = *dtype,
       .rows = rows.numel() / columns,
       .columns = columns,
       .k = k,
       .row_values = rows.const_data_ptr(),
       .row_stride = columns,
       .values = values.mutable_data_ptr(),
       .ids = indices.mutable_data_ptr<int64_t>()},
      torch_threads());
  return {values, indices};
}

MUSA_NATIVE_KERNEL("aten::topk", topk);

}  // namespace
}  // namespace musa
