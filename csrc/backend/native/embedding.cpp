// aten::embedding.
#include <ATen/ops/embedding.h>
#include <c10/util/SmallVector.h>

#include "backend/native/kernels.h"
#include "backend/native/rows.h"
#include "backend/native/tensors.h"
#include "mudnn/gather.h"

namespace musa {
namespace {

at::Tensor embedding(
    const at::Tensor& weight, const at::Tensor& indices, int64_t padding_idx, bool scale_grad_by_freq, bool sparse) {
  const bool whole = indices.scalar_type() == at::kLong || indices.scalar_type() == at::kInt;
  if (weight.dim() != 2 || weight.layout() != at::kStrided || !whole || (weight.size(1) > 1 && weight.stride(1) != 1) ||
      weight.is_conj() || weight.is_neg()) {
    note_reference();
    return at::embedding(weight, indices, padding_idx, scale_grad_by_freq, sparse);
  }
  const at::Tensor ids = indices.to(at::kLong).contiguous();
  const int64_t* values = ids.const_data_ptr<int64_t>();
  const int64_t count = ids.numel();
  const int64_t rows = weight.size(0);
  for (int64_t i = 0; i < count; ++i) {
    TORCH_CHECK_INDEX(values[i] >= 0 && values[i] < rows, "index out of range in self");
  }
  c10::SmallVector<int64_t, 6> sizes(indices.sizes().begin(), indices.sizes().end());
  sizes.push_back(weight.size(1));
  at::Tensor out = fresh(sizes, weight.scalar_type());
  const auto item = static_cast<int64_t>(weight.itemsize());
  if (out.numel() > 0) {
    mudnn::gather_rows(
        {.count = count,
         .row_bytes = weight.size(1) * item,
         .table = weight.const_data_ptr(),
         .table_stride = weight.stride(0) * item,
         .ids = values,
         .out = out.mutable_data_ptr()},
        torch_threads());
  }
  return out;
}

/// The rows that are read and written, not the table.
OpCost embedding_cost(const c10::IValue* arguments) {
  const at::Tensor& weight = arguments[0].toTensor();
  const at::Tensor& indices = arguments[1].toTensor();
  const auto count = static_cast<double>(indices.numel());
  const double row =
      weight.dim() == 2 ? static_cast<double>(weight.size(1)) * static_cast<double>(weight.itemsize()) : 0;
  return {.flops = 0, .bytes = count * (2 * row + static_cast<double>(indices.itemsize()))};
}

MUSA_NATIVE_KERNEL("aten::embedding", embedding, embedding_cost);

}  // namespace
}  // namespace musa
