// Kinds of tensor the device doesn't have: one clear error each, instead of torch's list of registered backends.
#include <ATen/core/dispatch/Dispatcher.h>
#include <torch/library.h>

namespace musa {
namespace {

[[noreturn]] void refuse(const c10::OperatorHandle& op, const char* kind, const char* advice) {
  TORCH_CHECK_NOT_IMPLEMENTED(false, op.operator_name(), ": ", kind, " tensors are not supported on musa. ", advice);
}

void refuse_compressed(const c10::OperatorHandle& op, torch::jit::Stack* /*stack*/) {
  refuse(op, "sparse CSR, CSC, BSR and BSC", "Use layout=torch.sparse_coo or .to_dense(), or keep the tensor on cpu.");
}

void refuse_quantized(const c10::OperatorHandle& op, torch::jit::Stack* /*stack*/) {
  refuse(op, "quantized", "Use .dequantize(), keep the tensor on cpu, or store integers and scales as plain tensors.");
}

TORCH_LIBRARY_IMPL(_, SparseCsrPrivateUse1, library) {
  library.fallback(torch::CppFunction::makeFromBoxedFunction<&refuse_compressed>());
}
TORCH_LIBRARY_IMPL(_, QuantizedPrivateUse1, library) {
  library.fallback(torch::CppFunction::makeFromBoxedFunction<&refuse_quantized>());
}

template <void (*Refuse)(const c10::OperatorHandle&, torch::jit::Stack*)>
void refuse_all(torch::Library& library, std::initializer_list<const char*> names) {
  for (const char* name : names) {
    library.impl(name, torch::CppFunction::makeFromBoxedFunction<Refuse>());
  }
}

// Composite kernels would win over the fallback.
TORCH_LIBRARY_IMPL(aten, SparseCsrPrivateUse1, library) {
  refuse_all<&refuse_compressed>(
      library,
      {"empty.memory_format", "_sparse_compressed_tensor_unsafe", "_sparse_compressed_tensor_with_dims",
       "_sparse_csr_tensor_unsafe", "_sparse_csc_tensor_unsafe", "_sparse_bsr_tensor_unsafe",
       "_sparse_bsc_tensor_unsafe"});
}
TORCH_LIBRARY_IMPL(aten, QuantizedPrivateUse1, library) {
  refuse_all<&refuse_quantized>(library, {"empty.memory_format"});
}
TORCH_LIBRARY_IMPL(aten, SparsePrivateUse1, library) {
  refuse_all<&refuse_compressed>(library, {"_to_sparse_csr", "_to_sparse_csc", "_to_sparse_bsr", "_to_sparse_bsc"});
}

// Plain tensors in, one of these kinds out.
TORCH_LIBRARY_IMPL(aten, PrivateUse1, library) {
  refuse_all<&refuse_compressed>(
      library,
      {"_to_sparse_csr", "_to_sparse_csc", "_to_sparse_bsr", "_to_sparse_bsc", "_sparse_compressed_tensor_unsafe",
       "_sparse_csr_tensor_unsafe", "_sparse_csc_tensor_unsafe", "_sparse_bsr_tensor_unsafe",
       "_sparse_bsc_tensor_unsafe"});
  refuse_all<&refuse_quantized>(
      library,
      {"quantize_per_tensor", "quantize_per_tensor.tensor_qparams", "quantize_per_tensor.tensors",
       "quantize_per_tensor_dynamic", "quantize_per_channel", "_make_per_tensor_quantized_tensor",
       "_make_per_channel_quantized_tensor"});
}

}  // namespace
}  // namespace musa
