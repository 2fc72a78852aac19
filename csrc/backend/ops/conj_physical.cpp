// conj_physical_ in place: torch's composite calls a kernel table by device and finds none for musa.
#include <ATen/ops/conj_physical.h>
#include <torch/library.h>

namespace musa {
namespace {

at::Tensor& conjugate_in_place(at::Tensor& self) {
  return self.is_complex() ? at::conj_physical_out(self, self) : self;
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) { m.impl("conj_physical_", &conjugate_in_place); }

}  // namespace
}  // namespace musa
