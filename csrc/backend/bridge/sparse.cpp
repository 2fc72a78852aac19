// Sparse COO tensors: which operators there are, and the few that are metadata or copies.
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/ops/_coalesced_native.h>
#include <ATen/ops/_dimI_native.h>
#include <ATen/ops/_dimV_native.h>
#include <ATen/ops/_indices_native.h>
#include <ATen/ops/_nnz_native.h>
#include <ATen/ops/_sparse_coo_tensor_with_dims_and_tensors_native.h>
#include <ATen/ops/_sparse_coo_tensor_with_dims_native.h>
#include <ATen/ops/_values_native.h>
#include <ATen/ops/clone_native.h>
#include <ATen/ops/copy_native.h>
#include <ATen/ops/copy_sparse_to_sparse_native.h>
#include <ATen/ops/dense_dim_native.h>
#include <ATen/ops/empty_like_native.h>
#include <ATen/ops/empty_native.h>
#include <ATen/ops/indices_native.h>
#include <ATen/ops/is_coalesced_native.h>
#include <ATen/ops/resize_as_sparse_native.h>
#include <ATen/ops/sparse_dim_native.h>
#include <ATen/ops/sparse_resize_and_clear_native.h>
#include <ATen/ops/sparse_resize_native.h>
#include <ATen/ops/values_native.h>
#include <ATen/ops/zero_native.h>
#include <torch/library.h>

#include "backend/bridge/composed_call.h"

namespace musa {
namespace {

void sparse_bridge(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  TORCH_CHECK_NOT_IMPLEMENTED(
      op.hasKernelForDispatchKey(c10::DispatchKey::SparseCPU) || op.hasKernelForDispatchKey(c10::DispatchKey::CPU), "'",
      op.operator_name(), "' takes no sparse COO tensor, on musa as on cpu. Use .to_dense() first.");
  run_composed(op, stack);
}

TORCH_LIBRARY_IMPL(aten, SparsePrivateUse1, library) {
  // Shape, parts and copies: no arithmetic, and the parts must stay the tensors that they are.
  library.impl("_indices", TORCH_FN(at::native::_indices_sparse));
  library.impl("_values", TORCH_FN(at::native::_values_sparse));
  library.impl("indices", TORCH_FN(at::native::indices_sparse));
  library.impl("values", TORCH_FN(at::native::values_sparse));
  library.impl("_nnz", TORCH_FN(at::native::_nnz_sparse));
  library.impl("is_coalesced", TORCH_FN(at::native::is_coalesced_sparse));
  library.impl("_coalesced_", TORCH_FN(at::native::_coalesced_sparse_));
  library.impl("sparse_dim", TORCH_FN(at::native::sparse_dim_sparse));
  library.impl("dense_dim", TORCH_FN(at::native::dense_dim_sparse));
  library.impl("_dimI", TORCH_FN(at::native::sparse_dim_sparse));
  library.impl("_dimV", TORCH_FN(at::native::dense_dim_sparse));
  library.impl("_sparse_coo_tensor_with_dims", TORCH_FN(at::native::new_with_dims_sparse));
  library.impl(
      "_sparse_coo_tensor_with_dims_and_tensors", TORCH_FN(at::native::new_with_dims_and_tensor_sparse_symint));
  library.impl("empty.memory_format", TORCH_FN(at::native::empty_sparse));
  library.impl("empty_like", TORCH_FN(at::native::empty_like_sparse_coo));
  library.impl("clone", TORCH_FN(at::native::clone_sparse));
  library.impl("copy_", TORCH_FN(at::native::copy_sparse_wrapper_));
  library.impl("copy_sparse_to_sparse_", TORCH_FN(at::native::copy_sparse_));
  library.impl("sparse_resize_", TORCH_FN(at::native::sparse_resize_));
  library.impl("sparse_resize_and_clear_", TORCH_FN(at::native::sparse_resize_and_clear_));
  library.impl("resize_as_sparse_", TORCH_FN(at::native::resize_as_sparse_));
  library.impl("zero_", TORCH_FN(at::native::zero_sparse_));

  // All other ops that have a sparse CPU kernel; explicitly, or a composite kernel would win over the fallback.
  c10::Dispatcher& dispatcher = c10::Dispatcher::singleton();
  for (const c10::OperatorName& name : dispatcher.getAllOpNames()) {
    if (name.name.rfind("aten::", 0) != 0 || name.name.rfind("aten::_to_sparse_", 0) == 0) {
      continue;  // collectives have sparse kernels too; _to_sparse_csr and its kind are refused elsewhere
    }
    const auto op = dispatcher.findSchema(name);
    if (op.has_value() && op->hasKernelForDispatchKey(c10::DispatchKey::SparseCPU) &&
        !op->hasKernelForDispatchKey(c10::DispatchKey::SparsePrivateUse1)) {
      library.impl(c10::toString(name).c_str(), torch::CppFunction::makeFromBoxedFunction<&sparse_bridge>());
    }
  }
}

TORCH_LIBRARY_IMPL(_, SparsePrivateUse1, library) {
  library.fallback(torch::CppFunction::makeFromBoxedFunction<&sparse_bridge>());
}

// Dense tensors in, a sparse one out.
TORCH_LIBRARY_IMPL(aten, PrivateUse1, library) {
  library.impl("_to_sparse", torch::CppFunction::makeFromBoxedFunction<&sparse_bridge>());
  library.impl("_to_sparse.sparse_dim", torch::CppFunction::makeFromBoxedFunction<&sparse_bridge>());
}

}  // namespace
}  // namespace musa
