#include "backend/bridge/composed_call.h"

#include <ATen/NestedTensorImpl.h>
#include <ATen/SparseTensorImpl.h>

#include <unordered_map>

#include "backend/bridge/host_view.h"
#include "backend/graph/refusal.h"
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

/// A nested tensor of the shapes of `like` over a flat `buffer`; the shapes are cloned into host memory of their own.
at::Tensor make_nested(c10::DispatchKey key, const at::native::NestedTensorImpl& like, const at::Tensor& buffer) {
  const bool on_card = key == c10::DispatchKey::NestedTensorPrivateUse1;
  const auto own = [on_card](const at::Tensor& shapes) { return on_card ? shapes.clone() : shapes; };
  return at::detail::make_tensor<at::native::NestedTensorImpl>(
      buffer.storage(), c10::DispatchKeySet(key), like.dtype(), own(like.get_nested_sizes()),
      own(like.get_nested_strides()), own(like.get_storage_offsets()));
}

/// One call of an operator with at least one composed tensor among its arguments or results.
class ComposedCall {
 public:
  ComposedCall(const c10::OperatorHandle& op, Stack* stack)
      : op_(op), stack_(stack), takes_host_shapes_(op.operator_name().name.find("nested") != std::string::npos) {}

  void run() {
    const c10::FunctionSchema& schema = op_.schema();
    const size_t first = stack_->size() - schema.arguments().size();
    find_device(first);
    graph::refuse_if_captured(device_.index(), op_.operator_name().name, "sparse and nested tensors can't be captured");
    run_on_card(first);
    // The shapes inside a nested tensor belong to the host: made only now that the card's memory is out of reach.
    for (size_t i = stack_->size() - schema.returns().size(); i < stack_->size(); ++i) {
      c10::IValue& value = (*stack_)[i];
      if (value.isTensor() && value.toTensor().defined() && value.toTensor().is_nested() && value.toTensor().is_cpu()) {
        value = make_nested_on_card(value.toTensor());
      }
    }
  }

 private:
  void run_on_card(size_t first) {
    const c10::FunctionSchema& schema = op_.schema();
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

  struct Shown {
    at::Tensor original;
    at::Tensor shown;
    at::Tensor indices;  // of a sparse tensor: the views it was built over
    at::Tensor values;
    bool written;
  };

  void note(const at::Tensor& tensor) {
    if (!tensor.defined() ||
        (tensor.is_cpu() && !tensor.is_nested() && !tensor.is_sparse() && (takes_host_shapes_ || tensor.dim() == 0))) {
      return;
    }
    if (!found_) {
      device_ = tensor.device();
      found_ = true;
    }
    TORCH_CHECK(
        device_ == tensor.device(), "Expected all tensors to be on the same device, but found at least two devices, ",
        device_, " and ", tensor.device(), "! (in method wrapper_MUSA_", op_.operator_name().name.substr(6), ")");
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
    const auto view = [&](const at::Tensor& part) { return written ? scope.written(part) : scope.view(part); };
    if (tensor.is_nested()) {
      const at::native::NestedTensorImpl& impl = *at::native::get_nested_tensor_impl(tensor);
      const at::Tensor buffer = view(scope.outside([&] { return impl.get_unsafe_storage_as_tensor(); }));
      shown_.push_back({tensor, make_nested(c10::DispatchKey::NestedTensorCPU, impl, buffer), {}, {}, written});
    } else if (!tensor.is_sparse()) {
      shown_.push_back({tensor, view(tensor), {}, {}, written});
    } else {
      const at::SparseTensorImpl& impl = *sparse_impl(tensor);
      const at::Tensor indices = view(impl.indices());
      const at::Tensor values = view(impl.values());
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
    } else if (!argument.original.is_nested() && argument.shown.sizes() != argument.original.sizes()) {
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
    if (result.is_nested()) {
      const at::Tensor buffer = at::native::get_nested_tensor_impl(result)->get_unsafe_storage_as_tensor();
      nested_buffers_.emplace(result.unsafeGetTensorImpl(), scope.result(buffer));
      return result;
    }
    if (!result.is_sparse()) {
      return scope.result(result);
    }
    const at::SparseTensorImpl& impl = *sparse_impl(result);
    const at::Tensor indices = scope.result(impl.indices());
    const at::Tensor values = scope.result(impl.values());
    return scope.outside([&] { return make_sparse(c10::DispatchKey::SparsePrivateUse1, impl, indices, values); });
  }

  at::Tensor make_nested_on_card(const at::Tensor& cpu) {
    const at::native::NestedTensorImpl& impl = *at::native::get_nested_tensor_impl(cpu);
    return make_nested(c10::DispatchKey::NestedTensorPrivateUse1, impl, nested_buffers_.at(cpu.unsafeGetTensorImpl()));
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
  bool takes_host_shapes_;  // the op takes the shapes of a nested tensor, which are on the host, as an argument
  std::vector<Shown> shown_;
  std::unordered_map<c10::TensorImpl*, at::Tensor> nested_buffers_;
};

}  // namespace

void run_composed(const c10::OperatorHandle& op, Stack* stack) { ComposedCall(op, stack).run(); }

}  // namespace musa
