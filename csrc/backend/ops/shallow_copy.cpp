// Whether `parameter.data = tensor` may switch between cpu and musa. With it Module.to keeps its Parameter objects, so
// tied weights stay tied and optimizers keep their references, as on CUDA.
#include <torch/library.h>

#include "backend/runtime/device.h"

namespace musa {
namespace {

bool is_dense_cpu_or_musa(const at::Tensor& tensor) {
  return tensor.layout() == c10::kStrided && !tensor.is_nested() && !tensor.is_quantized() &&
      !tensor.unsafeGetTensorImpl()->is_python_dispatch() &&
      (tensor.device().type() == kMusa || tensor.device().is_cpu());
}

bool has_compatible_shallow_copy_type(const at::Tensor& self, const at::Tensor& from) {
  return self.unsafeGetTensorImpl()->has_compatible_shallow_copy_type(from.key_set()) ||
      (is_dense_cpu_or_musa(self) && is_dense_cpu_or_musa(from));
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, library) {
  library.impl("_has_compatible_shallow_copy_type", TORCH_FN(has_compatible_shallow_copy_type));
}

}  // namespace
}  // namespace musa
