// Strided nested tensors, which torch.nn.TransformerEncoder makes by itself for a padding mask. (The jagged ones are a
// tensor subclass over plain tensors and need nothing.)
#include <ATen/ops/_nested_tensor_size_native.h>
#include <ATen/ops/_nested_tensor_storage_offsets_native.h>
#include <ATen/ops/_nested_tensor_strides_native.h>
#include <torch/library.h>

#include "backend/bridge/composed_call.h"

namespace musa {
namespace {

void nested_bridge(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  TORCH_CHECK_NOT_IMPLEMENTED(
      op.hasKernelForDispatchKey(c10::DispatchKey::NestedTensorCPU), "'", op.operator_name(),
      "' takes no strided nested tensor, on musa as on cpu. Use layout=torch.jagged.");
  run_composed(op, stack);
}

TORCH_LIBRARY_IMPL(aten, NestedTensorPrivateUse1, library) {
  library.impl("_nested_tensor_size", TORCH_FN(at::native::_nested_tensor_size));
  library.impl("_nested_tensor_strides", TORCH_FN(at::native::_nested_tensor_strides));
  library.impl("_nested_tensor_storage_offsets", TORCH_FN(at::native::_nested_tensor_storage_offsets));
  // Explicitly, or a composite kernel would win over the fallback.
  c10::Dispatcher& dispatcher = c10::Dispatcher::singleton();
  for (const c10::OperatorName& name : dispatcher.getAllOpNames()) {
    if (name.name.rfind("aten::", 0) != 0) {
      continue;
    }
    const auto op = dispatcher.findSchema(name);
    if (op.has_value() && op->hasKernelForDispatchKey(c10::DispatchKey::NestedTensorCPU) &&
        !op->hasKernelForDispatchKey(c10::DispatchKey::NestedTensorPrivateUse1)) {
      library.impl(c10::toString(name).c_str(), torch::CppFunction::makeFromBoxedFunction<&nested_bridge>());
    }
  }
}

TORCH_LIBRARY_IMPL(_, NestedTensorPrivateUse1, library) {
  library.fallback(torch::CppFunction::makeFromBoxedFunction<&nested_bridge>());
}

// Padded tensors in, a nested one out.
TORCH_LIBRARY_IMPL(aten, PrivateUse1, library) {
  library.impl("_nested_tensor_from_mask", torch::CppFunction::makeFromBoxedFunction<&run_composed>());
  library.impl("_nested_from_padded", torch::CppFunction::makeFromBoxedFunction<&run_composed>());
}

}  // namespace
}  // namespace musa
