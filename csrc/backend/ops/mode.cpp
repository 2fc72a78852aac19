// The out= form of mode: torch's composite refuses devices it doesn't know by name.
#include <ATen/native/Resize.h>
#include <ATen/ops/mode.h>
#include <torch/library.h>

#include "backend/ops/devices.h"

namespace musa {
namespace {

std::tuple<at::Tensor&, at::Tensor&> mode_into(
    const at::Tensor& self, int64_t dim, bool keepdim, at::Tensor& values, at::Tensor& indices) {
  common_device("aten::mode.values", {{"self", self}, {"values", values}, {"indices", indices}});
  TORCH_CHECK(
      values.scalar_type() == self.scalar_type(), "expected scalar type '", self.scalar_type(), "' but got '",
      values.scalar_type(), "' for values output");
  TORCH_CHECK(
      indices.scalar_type() == c10::kLong, "expected scalar type 'Long' but got '", indices.scalar_type(),
      "' for indices output");
  const auto [mode_values, mode_indices] = at::mode(self, dim, keepdim);
  at::native::resize_output(values, mode_values.sizes());
  at::native::resize_output(indices, mode_indices.sizes());
  values.copy_(mode_values);
  indices.copy_(mode_indices);
  return std::tie(values, indices);
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, library) { library.impl("mode.values", TORCH_FN(mode_into)); }

}  // namespace
}  // namespace musa
