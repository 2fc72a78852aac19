// Sparse COO tensors: the bridge once more, with a CPU sparse tensor rebuilt over the views of indices and values.
#include <ATen/SparseTensorImpl.h>
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

#include "backend/bridge/host_view.h"
#include "backend/runtime/device.h"

namespace musa {
namespace {

using torch::jit::Stack;

at::SparseTensorImpl* sparse_impl(const at::Tensor& tensor) {
  return static_cast<at::SparseTensorImpl*>(tensor.unsafeGetTensorImpl());
}

at::Tensor make_sparse(
    c10::DispatchKey key, const at::SparseTensorImpl& like, const at::Tensor& indices, const at::Tensor& values) {
  at::Tensor made = at::detail::make_tensor<at::SparseTensorImpl>(c10::DispatchKeySet(key), like.dtype());
  at::SparseTensorImpl* impl = sparse_impl(made);
  impl->resize_(like.sparse_dim(), like.dense_dim(), like.sizes());
  impl->set_indices_and_values_unsafe(indices, values);
  impl->set_coalesced(like.coalesced());
  return made;
}

/// One call of an operator with at least one sparse tensor among its arguments or results.
class SparseCall {
 public:
  SparseCall(const c10::OperatorHandle& op, Stack* stack) : op_(op), stack_(stack) {}

  void run() {
    const c10::FunctionSchema& schema = op_.schema();
    const size_t first = stack_->size() - schema.arguments().size();
    find_device(first);
    CardScope scope(device_, op_.operator_name().name.c_str());
    for (size_t i = 0; i < schema.arguments().size(); ++i) {
      const c10::AliasInfo* alias = schema.arguments()[i].alias_info();
      show_value((*stack_)[first + i], scope, alias != nullptr && alias->isWrite());
    }
    op_.callBoxed(stack_);
    for (const Shown& argument : shown_) {
      if (argument.written) {
        write_back(argument, scope);
      }
    }
    for (size_t i = stack_->size() - schema.returns().size(); i < stack_->size(); ++i) {
      take_value((*stack_)[i], scope);
    }
  }

 private:
  struct Shown {
    at::Tensor original;
    at::Tensor shown;
    at::Tensor indices;  // of a sparse tensor: the views it was built over
    at::Tensor values;
    bool written;
  };

  void note(const at::Tensor& tensor) {
    if (!tensor.defined() || (tensor.is_cpu() && tensor.dim() == 0 && !tensor.is_sparse())) {
      return;
    }
    if (!found_) {
      device_ = tensor.device();
      found_ = true;
    }
    TORCH_CHECK(
        device_ == tensor.device(), "Expected all tensors to be on the same device, but found at least two devices, ",
        device_, " and ", tensor.device(), "! (in sparse method wrapper_MUSA_", op_.operator_name().name.substr(6),
        ")");
  }

  void find_device(size_t first) {
    for (size_t i = first; i < stack_->size(); ++i) {
      const c10::IValue& value = (*stack_)[i];
      if (value.isTensor()) {
        note(value.toTensor());
      } else if (value.isTensorList()) {
        for (const at::Tensor& tensor : value.toTensorVector()) {
          note(tensor);
        }
      } else if (value.isDevice() && value.toDevice().type() == kMusa && !found_) {
        device_ = c10::Device(kMusa, resolve_device(value.toDevice().index()));
        found_ = true;
      }
    }
    if (!found_) {
      device_ = c10::Device(kMusa, current_device());
    }
  }

  at::Tensor show_tensor(const at::Tensor& tensor, CardScope& scope, bool written) {
    if (!tensor.defined() || tensor.device().type() != kMusa) {
      return tensor;
    }
    for (Shown& known : shown_) {
      if (known.original.is_same(tensor)) {
        known.written |= written;
        return known.shown;
      }
    }
    if (!tensor.is_sparse()) {
      shown_.push_back({tensor, scope.view(tensor), {}, {}, written});
    } else {
      const at::SparseTensorImpl& impl = *sparse_impl(tensor);
      const at::Tensor indices = scope.view(impl.indices());
      const at::Tensor values = scope.view(impl.values());
      shown_.push_back(
          {tensor, make_sparse(c10::DispatchKey::SparseCPU, impl, indices, values), indices, values, written});
    }
    return shown_.back().shown;
  }

  void show_value(c10::IValue& value, CardScope& scope, bool written) {
    if (value.isTensor()) {
      value = show_tensor(value.toTensor(), scope, written);
    } else if (value.isTensorList()) {
      c10::List<at::Tensor> list;
      for (const at::Tensor& tensor : value.toTensorVector()) {
        list.push_back(show_tensor(tensor, scope, written));
      }
      value = std::move(list);
    } else if (value.isDevice()) {
      value = c10::Device(c10::kCPU);
    }
  }

  at::Tensor take_part(const at::Tensor& part, const at::Tensor& before, const at::Tensor& original, CardScope& scope) {
    return part.is_same(before) ? original : scope.result(part);
  }

  void write_back(const Shown& argument, CardScope& scope) {
    if (argument.original.is_sparse()) {
      const at::SparseTensorImpl& shown = *sparse_impl(argument.shown);
      at::SparseTensorImpl* original = sparse_impl(argument.original);
      const at::Tensor indices = take_part(shown.indices(), argument.indices, original->indices(), scope);
      const at::Tensor values = take_part(shown.values(), argument.values, original->values(), scope);
      original->raw_resize_(shown.sparse_dim(), shown.dense_dim(), shown.sizes());
      original->set_indices_and_values_unsafe(indices, values);
      original->set_coalesced(shown.coalesced());
    } else if (argument.shown.sizes() != argument.original.sizes()) {
      const at::Tensor resized = scope.result(argument.shown);
      c10::TensorImpl* original = argument.original.unsafeGetTensorImpl();
      original->set_storage_keep_dtype(resized.storage());
      original->set_sizes_and_strides(resized.sizes(), resized.strides(), resized.storage_offset());
    }
  }

  at::Tensor take_tensor(const at::Tensor& result, CardScope& scope) {
    if (!result.defined()) {
      return result;
    }
    for (const Shown& argument : shown_) {
      if (argument.shown.is_same(result)) {
        return argument.original;
      }
    }
    if (!result.is_sparse()) {
      return scope.result(result);
    }
    const at::SparseTensorImpl& impl = *sparse_impl(result);
    const at::Tensor indices = scope.result(impl.indices());
    const at::Tensor values = scope.result(impl.values());
    return scope.outside([&] { return make_sparse(c10::DispatchKey::SparsePrivateUse1, impl, indices, values); });
  }

  void take_value(c10::IValue& value, CardScope& scope) {
    if (value.isTensor()) {
      value = take_tensor(value.toTensor(), scope);
    } else if (value.isTensorList()) {
      c10::List<at::Tensor> list;
      for (const at::Tensor& tensor : value.toTensorVector()) {
        list.push_back(take_tensor(tensor, scope));
      }
      value = std::move(list);
    }
  }

  const c10::OperatorHandle& op_;
  Stack* stack_;
  c10::Device device_{kMusa, 0};
  bool found_ = false;
  std::vector<Shown> shown_;
};

void sparse_bridge(const c10::OperatorHandle& op, Stack* stack) {
  TORCH_CHECK_NOT_IMPLEMENTED(
      op.hasKernelForDispatchKey(c10::DispatchKey::SparseCPU) || op.hasKernelForDispatchKey(c10::DispatchKey::CPU), "'",
      op.operator_name(), "' takes no sparse COO tensor, on musa as on cpu. Use .to_dense() first.");
  SparseCall(op, stack).run();
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
