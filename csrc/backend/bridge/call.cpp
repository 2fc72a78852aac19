#include "backend/bridge/call.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/clone.h>
#include <c10/util/SmallVector.h>

#include "backend/bridge/below_autograd.h"
#include "backend/bridge/cost.h"
#include "backend/bridge/wrap.h"
#include "backend/generator.h"
#include "backend/runtime/check.h"
#include "backend/runtime/device.h"
#include "backend/runtime/stream.h"
#include "backend/runtime/threads.h"
#include "backend/storage.h"

namespace musa {

namespace {

using c10::IValue;
using torch::jit::Stack;

/// A musa tensor while the CPU kernel sees it as `shown`.
struct Shown {
  at::Tensor original;
  c10::intrusive_ptr<c10::TensorImpl> shown;
  c10::StorageImpl* twin;
  bool written;
  bool temporary;  // `shown` is an upcast copy, not a view
};

class Call {
 public:
  Call(const Plan& plan, Stack* stack)
      : plan_(plan), stack_(stack), base_(stack->size() - plan.arg_count) {}

  void run(const c10::OperatorHandle& op) {
    find_device();
    stream_ = current_native_stream(device_.index());
    {
      AllocateOnCard memory(device_.index(), stream_);
      BelowAutograd state;
      show_arguments();
      if (C10_UNLIKELY(plan_.facts.flops != FlopRule::kNone)) {
        cost_.flops = operator_flops(plan_.facts.flops, *stack_, base_);
      }
      op.redispatchBoxed(c10::DispatchKeySet(c10::DispatchKey::CPU), stack_);
      if (C10_UNLIKELY(upcast_)) {
        cast_results_back();
      }
    }
    for (Shown& argument : shown_) {
      if (argument.written) {
        write_back(argument);
      }
    }
    take_results();
    launch();
  }

 private:
  IValue& argument(size_t index) { return (*stack_)[base_ + index]; }

  [[noreturn]] void refuse_devices(c10::Device one, c10::Device other, size_t index) const {
    TORCH_CHECK(false, "Expected all tensors to be on the same device, but found at least two devices, ", one, " and ",
                other, "! (when checking argument for argument ", plan_.arg_names[index], " in method wrapper_MUSA_",
                plan_.method, ")");
  }

  // ---- devices ----

  void note(const at::Tensor& tensor, const ArgPlan& argument) {
    if (!tensor.defined()) {
      return;
    }
    const c10::Device device = tensor.device();
    if (C10_LIKELY(device.type() == kMusa)) {
      if (C10_LIKELY(!found_)) {
        device_ = device;
        found_ = true;
      } else if (C10_UNLIKELY(device != device_)) {
        refuse_devices(device_, device, argument.index);
      }
    } else if (tensor.dim() > 0 || argument.written || !device.is_cpu() || plan_.has(kRefusesCpuScalars)) {
      if (foreign_ < 0) {
        foreign_ = argument.index;
        foreign_device_ = device;
        foreign_is_scalar_ = tensor.dim() == 0 && device.is_cpu() && tensor.unsafeGetTensorImpl()->is_wrapped_number();
      }
    }
  }

  void find_device() {
    for (const ArgPlan& plan : plan_.args) {
      IValue& value = argument(plan.index);
      switch (plan.kind) {
        case ArgKind::kTensor:
        case ArgKind::kOptionalTensor:
          if (C10_LIKELY(value.isTensor())) {
            note(value.toTensor(), plan);
          }
          break;
        case ArgKind::kTensorList:
          if (value.isTensorList()) {
            for (const auto& tensor : value.toTensorList()) {
              note(static_cast<const at::Tensor&>(tensor), plan);
            }
          }
          break;
        case ArgKind::kOptionalTensorList:
          if (value.isList()) {
            for (const IValue& element : value.toListRef()) {
              if (element.isTensor()) {
                note(element.toTensor(), plan);
              }
            }
          }
          break;
        case ArgKind::kDevice:
          if (value.isDevice() && value.toDevice().type() == kMusa && !found_) {
            device_ = c10::Device(kMusa, resolve_device(value.toDevice().index()));
            found_ = true;
          }
          break;
        case ArgKind::kGenerator:
          break;
      }
    }
    ensure_initialized();
    if (C10_UNLIKELY(!found_)) {
      device_ = c10::Device(kMusa, current_device());
    }
    if (C10_UNLIKELY(foreign_ >= 0)) {
      check_foreign();
    }
    sync_thread_count();
  }

  void check_foreign() const {
    if (plan_.has(kIndexes)) {
      const IValue& self = (*stack_)[base_];
      TORCH_CHECK(!(self.isTensor() && self.toTensor().is_cpu()),
                  "indices should be either on cpu or on the same device as the indexed tensor (cpu)");
    }
    if (foreign_device_.is_cpu() && (plan_.has(kTakesCpuTensors) || foreign_is_scalar_)) {
      return;
    }
    refuse_devices(device_, foreign_device_, static_cast<size_t>(foreign_));
  }

  // ---- arguments ----

  c10::intrusive_ptr<c10::TensorImpl> show_once(const at::Tensor& tensor, const ArgPlan& argument) {
    c10::TensorImpl* impl = tensor.unsafeGetTensorImpl();
    for (Shown& known : shown_) {
      if (known.original.unsafeGetTensorImpl() == impl) {
        known.written |= argument.written;
        return known.shown;
      }
    }
    c10::intrusive_ptr<c10::TensorImpl> shown = show(impl, plan_.method.c_str());
    const double bytes = static_cast<double>(impl->numel()) * static_cast<double>(impl->itemsize());
    cost_.bytes += argument.read_and_written ? 2 * bytes : bytes;
    const c10::ScalarType type = c10::typeMetaToScalarType(impl->dtype());
    if (shown_.empty()) {
      cost_.dtype = cost_dtype(type);
    }
    bool temporary = false;
    if (C10_UNLIKELY(plan_.upcasts)) {
      const c10::ScalarType compute = compute_dtype(plan_.method, type);
      if (compute != type) {
        shown = at::Tensor(shown).to(compute).unsafeReleaseIntrusivePtr();
        upcast_ = temporary = true;
        upcast_from_ = type;
        upcast_to_ = compute;
      }
    }
    c10::StorageImpl* twin = shown->has_storage() ? shown->unsafe_storage().unsafeGetStorageImpl() : nullptr;
    shown_.push_back({tensor, shown, twin, argument.written, temporary});
    return shown;
  }

  at::Tensor show_tensor(const at::Tensor& tensor, const ArgPlan& argument) {
    if (!tensor.defined() || tensor.device().type() != kMusa) {
      return tensor;
    }
    return at::Tensor(show_once(tensor, argument));
  }

  void show_arguments() {
    for (const ArgPlan& plan : plan_.args) {
      IValue& value = argument(plan.index);
      switch (plan.kind) {
        case ArgKind::kTensor:
        case ArgKind::kOptionalTensor:
          if (C10_LIKELY(value.isTensor())) {
            const at::Tensor& tensor = value.toTensor();
            if (C10_LIKELY(tensor.defined() && tensor.device().type() == kMusa)) {
              value = IValue(at::Tensor(show_once(tensor, plan)));
            }
          }
          break;
        case ArgKind::kTensorList:
          if (value.isTensorList()) {
            c10::List<at::Tensor> list;
            const auto original = value.toTensorList();
            list.reserve(original.size());
            for (const auto& tensor : original) {
              list.push_back(show_tensor(static_cast<const at::Tensor&>(tensor), plan));
            }
            value = IValue(std::move(list));
          }
          break;
        case ArgKind::kOptionalTensorList:
          if (value.isList()) {
            c10::List<std::optional<at::Tensor>> list;
            for (const IValue& element : value.toListRef()) {
              list.push_back(element.isTensor() ? std::make_optional(show_tensor(element.toTensor(), plan))
                                                : std::nullopt);
            }
            value = IValue(std::move(list));
          }
          break;
        case ArgKind::kDevice:
          if (value.isDevice()) {
            value = IValue(c10::Device(c10::kCPU));
          }
          break;
        case ArgKind::kGenerator: {
          const std::optional<at::Generator> given =
              value.isNone() ? std::nullopt : std::optional<at::Generator>(value.toGenerator());
          MusaGenerator* generator = generator_for(given, device_);
          const std::lock_guard<std::mutex> lock(generator->mutex_);
          value = IValue(cpu_generator_at(generator->reserve(1)));
          break;
        }
      }
    }
  }

  // ---- after the kernel ----

  void cast_results_back() {
    for (size_t i = stack_->size() - plan_.return_count; i < stack_->size(); ++i) {
      IValue& value = (*stack_)[i];
      if (value.isTensor() && value.toTensor().defined() && value.toTensor().scalar_type() == upcast_to_ &&
          find_shown(value.toTensor().unsafeGetTensorImpl()) == nullptr) {
        value = IValue(value.toTensor().to(upcast_from_));
      }
    }
    for (Shown& argument : shown_) {
      if (argument.written && argument.temporary) {
        const at::Tensor result(argument.shown);
        at::Tensor target(show(argument.original.unsafeGetTensorImpl(), plan_.method.c_str()));
        if (target.sizes() != result.sizes()) {
          target.resize_(result.sizes());
        }
        target.copy_(result);
        argument.shown = target.unsafeReleaseIntrusivePtr();
        argument.twin = argument.shown->unsafe_storage().unsafeGetStorageImpl();
      }
    }
  }

  Shown* find_shown(const c10::TensorImpl* impl) {
    for (Shown& argument : shown_) {
      if (argument.shown.get() == impl) {
        return &argument;
      }
    }
    return nullptr;
  }

  // Brings what the kernel did to a written argument's memory and shape back to the musa tensor.
  void write_back(Shown& argument) {
    c10::TensorImpl* original = argument.original.unsafeGetTensorImpl();
    c10::TensorImpl* shown = argument.shown.get();
    if (!shown->has_storage()) {
      return;
    }
    c10::StorageImpl* storage = shown->unsafe_storage().unsafeGetStorageImpl();
    c10::StorageImpl* before = original->unsafe_storage().unsafeGetStorageImpl();
    const void* memory = storage->data() == nullptr ? nullptr : musart::to_device(storage->data());
    if (C10_UNLIKELY(memory != before->data() || storage->nbytes() != before->nbytes())) {
      MusaStorage* ours = as_musa_storage(before);
      if (ours != nullptr && storage == argument.twin && !argument.temporary) {
        ours->adopt_twin();
      } else {
        original->set_storage_keep_dtype(take_storage(shown->storage(), device_, plan_.counters));
      }
    }
    if (C10_UNLIKELY(shown->sizes() != original->sizes() || shown->strides() != original->strides() ||
                     shown->storage_offset() != original->storage_offset())) {
      original->set_sizes_and_strides(shown->sizes(), shown->strides(), shown->storage_offset());
    }
  }

  IValue take_tensor(const at::Tensor& result, bool stays_on_cpu) {
    if (!result.defined()) {
      return IValue(result);
    }
    c10::TensorImpl* impl = result.unsafeGetTensorImpl();
    if (const Shown* argument = find_shown(impl)) {
      return IValue(argument->original);
    }
    if (C10_UNLIKELY(stays_on_cpu)) {
      return IValue(at::clone(result));  // out of the card's memory
    }
    cost_.bytes += static_cast<double>(impl->numel()) * static_cast<double>(impl->itemsize());
    if (C10_LIKELY(impl->has_storage())) {
      const c10::StorageImpl* storage = impl->unsafe_storage().unsafeGetStorageImpl();
      for (const Shown& argument : shown_) {
        if (argument.twin == storage && !argument.temporary) {
          return IValue(at::Tensor(take_on(impl, argument.original.storage())));
        }
      }
      for (const auto& [taken, card] : fresh_) {
        if (taken == storage) {
          return IValue(at::Tensor(take_on(impl, card)));
        }
      }
      if (plan_.return_count > 1) {
        c10::Storage card = take_storage(impl->storage(), device_, plan_.counters);
        fresh_.emplace_back(storage, card);
        return IValue(at::Tensor(take_on(impl, std::move(card))));
      }
    }
    return IValue(at::Tensor(take(impl, device_, plan_.counters)));
  }

  void take_results() {
    const size_t first = stack_->size() - plan_.return_count;
    for (size_t i = 0; i < plan_.return_count; ++i) {
      IValue& value = (*stack_)[first + i];
      if (C10_LIKELY(value.isTensor())) {
        value = take_tensor(value.toTensor(), i == 1 && plan_.has(kSecondResultOnCpu));
      } else if (value.isTensorList()) {
        c10::List<at::Tensor> list;
        for (const auto& tensor : value.toTensorList()) {
          list.push_back(take_tensor(static_cast<const at::Tensor&>(tensor), false).toTensor());
        }
        value = IValue(std::move(list));
      }
    }
  }

  void launch() {
    if (plan_.has(kNoLaunch)) {
      return;
    }
    musaSimSpan span{};
    MUSA_CHECK(musaSimLaunch(stream_, &cost_, &span));
    plan_.counters->add(cost_.bytes, span);
    if (C10_UNLIKELY(plan_.has(kSynchronizes))) {
      MUSA_CHECK(musaStreamSynchronize(stream_));
    }
  }

  const Plan& plan_;
  Stack* stack_;
  size_t base_;
  c10::Device device_{kMusa, 0};
  bool found_ = false;
  bool upcast_ = false;
  bool foreign_is_scalar_ = false;
  int foreign_ = -1;
  c10::Device foreign_device_{c10::kCPU};
  c10::ScalarType upcast_from_ = c10::ScalarType::Undefined;
  c10::ScalarType upcast_to_ = c10::ScalarType::Undefined;
  musaStream_t stream_ = nullptr;
  musaSimCost cost_{};
  c10::SmallVector<Shown, 6> shown_;
  c10::SmallVector<std::pair<const c10::StorageImpl*, c10::Storage>, 1> fresh_;
};

}  // namespace

void run_bridged(const c10::OperatorHandle& op, const Plan& plan, Stack* stack) { Call(plan, stack).run(op); }

}  // namespace musa
