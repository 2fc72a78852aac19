#include "backend/bridge/call.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/clone.h>
#include <c10/util/SmallVector.h>

#include "backend/bridge/below_autograd.h"
#include "backend/bridge/cost.h"
#include "backend/bridge/strict.h"
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
  Call(const Plan& plan, Stack* stack) : plan_(plan), stack_(stack), base_(stack->size() - plan.arg_count) {}

  ~Call() {
    for (Shown& argument : shown_) {
      if (!argument.temporary) {
        recycle(std::move(argument.shown));
      }
    }
  }

  void run(const c10::OperatorHandle& op) {
    {
      BelowAutograd state;
      show_arguments();
      check_devices();
      stream_ = current_native_stream(device_.index());
      AllocateOnCard memory(device_.index(), stream_);
      if (C10_UNLIKELY(!late_arguments_.empty())) {
        replace_late_arguments();
      }
      if (C10_UNLIKELY(plan_.facts.flops != FlopRule::kNone)) {
        cost_.flops = operator_flops(plan_.facts.flops, *stack_, base_);
      }
      op.redispatchBoxed(c10::DispatchKeySet(c10::DispatchKey::CPU), stack_);
      if (C10_UNLIKELY(upcast_)) {
        cast_results_back();
      }
    }
    if (plan_.writes) {
      for (Shown& argument : shown_) {
        if (argument.written) {
          write_back(argument);
        }
      }
    }
    take_results();
    launch();
  }

 private:
  IValue& argument(size_t index) { return (*stack_)[base_ + index]; }

  [[noreturn]] void refuse_devices(c10::Device one, c10::Device other, size_t index) const {
    TORCH_CHECK(
        false, "Expected all tensors to be on the same device, but found at least two devices, ", one, " and ", other,
        "! (when checking argument for argument ", plan_.arg_names[index], " in method wrapper_MUSA_", plan_.method,
        ")");
  }

  // ---- devices ----

  static constexpr const char* kIndexRule =
      "indices should be either on cpu or on the same device as the indexed tensor ";

  /// The indices of x[i] and x[i] = v may stay on the CPU, x and v may not.
  bool is_index(const ArgPlan& argument) const { return plan_.has(kIndexes) && argument.index == 1; }

  void note_card(c10::Device device, const ArgPlan& argument) {
    if (C10_LIKELY(!found_)) {
      device_ = device;
      found_ = true;
    } else if (C10_UNLIKELY(device != device_)) {
      TORCH_CHECK(!is_index(argument), kIndexRule, "(", device_, ")");
      refuse_devices(device_, device, argument.index);
    }
  }

  // A tensor that isn't on a card: legal or not, it is judged once the card is known.
  void note_foreign(const at::Tensor& tensor, const ArgPlan& argument) {
    if (tensor.is_cpu() && is_index(argument)) {
      return;
    }
    const bool harmless = tensor.dim() == 0 && tensor.is_cpu() && !argument.written;
    if (foreign_ < 0 &&
        !(harmless && (tensor.unsafeGetTensorImpl()->is_wrapped_number() || !plan_.has(kRefusesCpuScalars)))) {
      foreign_ = argument.index;
      foreign_device_ = tensor.device();
    }
  }

  void check_devices() {
    ensure_initialized();
    if (C10_UNLIKELY(!found_)) {
      find_device_argument();
    }
    if (C10_UNLIKELY(foreign_ >= 0)) {
      check_foreign();
    }
    sync_thread_count();
  }

  void find_device_argument() {
    c10::DeviceIndex index = -1;
    for (const ArgPlan& plan : plan_.args) {
      const IValue& value = argument(plan.index);
      if (plan.kind == ArgKind::kDevice && value.isDevice() && value.toDevice().type() == kMusa) {
        index = value.toDevice().index();
      }
    }
    device_ = c10::Device(kMusa, resolve_device(index));
  }

  void check_foreign() const {
    TORCH_CHECK(foreign_ != 0 || !plan_.has(kIndexes), kIndexRule, "(", foreign_device_, ")");
    if (foreign_device_.is_cpu() && plan_.has(kTakesCpuTensors)) {
      return;
    }
    refuse_devices(device_, foreign_device_, static_cast<size_t>(foreign_));
  }

  // ---- arguments ----

  const c10::intrusive_ptr<c10::TensorImpl>& show_once(at::Tensor tensor, const ArgPlan& argument) {
    c10::TensorImpl* impl = tensor.unsafeGetTensorImpl();
    note_card(impl->device(), argument);
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
      check_accepted(plan_.accepted_dtypes, type, plan_.method);
    }
    bool temporary = false;
    if (C10_UNLIKELY(plan_.upcasts)) {
      const c10::ScalarType compute = compute_dtype(plan_.method, type);
      if (compute != type) {
        AllocateOnCard memory(device_.index(), current_native_stream(device_.index()));
        shown = at::Tensor(shown).to(compute).unsafeReleaseIntrusivePtr();
        upcast_ = temporary = true;
        upcast_from_ = type;
        upcast_to_ = compute;
      }
    }
    c10::StorageImpl* twin = shown->has_storage() ? shown->unsafe_storage().unsafeGetStorageImpl() : nullptr;
    shown_.push_back({std::move(tensor), std::move(shown), twin, argument.written, temporary});
    return shown_.back().shown;
  }

  void show_value(IValue& value, const ArgPlan& plan) {
    const at::Tensor& tensor = value.toTensor();
    if (C10_UNLIKELY(!tensor.defined())) {
      return;
    }
    if (C10_LIKELY(tensor.device().type() == kMusa)) {
      value = IValue(at::Tensor(show_once(std::move(value).toTensor(), plan)));
    } else {
      note_foreign(tensor, plan);
    }
  }

  at::Tensor show_element(const at::Tensor& tensor, const ArgPlan& plan) {
    if (!tensor.defined()) {
      return tensor;
    }
    if (C10_LIKELY(tensor.device().type() == kMusa)) {
      return at::Tensor(show_once(tensor, plan));
    }
    note_foreign(tensor, plan);
    return tensor;
  }

  void show_list(IValue& value, const ArgPlan& plan) {
    c10::List<at::Tensor> list = std::move(value).toTensorList();
    // A list that only the stack holds was made for this call: its elements are replaced where they stand.
    c10::List<at::Tensor> shown = list.use_count() == 1 ? list : list.copy();
    for (size_t i = 0; i < shown.size(); ++i) {
      at::Tensor element = shown.extract(i);
      if (C10_LIKELY(element.defined() && element.device().type() == kMusa)) {
        shown.set(i, at::Tensor(show_once(std::move(element), plan)));
      } else {
        if (element.defined()) {
          note_foreign(element, plan);
        }
        shown.set(i, std::move(element));
      }
    }
    value = IValue(std::move(shown));
  }

  void show_arguments() {
    for (const ArgPlan& plan : plan_.args) {
      IValue& value = argument(plan.index);
      switch (plan.kind) {
        case ArgKind::kTensor:
        case ArgKind::kOptionalTensor:
          if (C10_LIKELY(value.isTensor())) {
            show_value(value, plan);
          }
          break;
        case ArgKind::kTensorList:
          if (value.isTensorList()) {
            show_list(value, plan);
          }
          break;
        case ArgKind::kOptionalTensorList:
          if (value.isList()) {
            c10::List<std::optional<at::Tensor>> list;
            for (const IValue& element : value.toListRef()) {
              list.push_back(
                  element.isTensor() ? std::make_optional(show_element(element.toTensor(), plan)) : std::nullopt);
              if (plan_.has(kIndexes) && element.isTensor() && element.toTensor().defined()) {
                const c10::ScalarType type = element.toTensor().scalar_type();
                synchronizes_ |= type == c10::ScalarType::Bool || type == c10::ScalarType::Byte;
              }
            }
            value = IValue(std::move(list));
          }
          break;
        case ArgKind::kDevice:
        case ArgKind::kGenerator:
          late_arguments_.push_back(&plan);
          break;
      }
    }
  }

  // What depends on the card: known only when every tensor has been seen.
  void replace_late_arguments() {
    for (const ArgPlan* plan : late_arguments_) {
      IValue& value = argument(plan->index);
      if (plan->kind == ArgKind::kDevice) {
        if (value.isDevice()) {
          value = IValue(c10::Device(c10::kCPU));
        }
        continue;
      }
      const std::optional<at::Generator> given =
          value.isNone() ? std::nullopt : std::optional<at::Generator>(value.toGenerator());
      MusaGenerator* generator = generator_for(given, device_);
      const std::lock_guard<std::mutex> lock(generator->mutex_);
      value = IValue(cpu_generator_at(generator->reserve(1)));
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
    if (C10_UNLIKELY(
            shown->sizes() != original->sizes() || shown->strides() != original->strides() ||
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
    if (C10_UNLIKELY(plan_.has(kSynchronizes) || synchronizes_)) {
      MUSA_CHECK(musaStreamSynchronize(stream_));
    }
  }

  const Plan& plan_;
  Stack* stack_;
  size_t base_;
  c10::Device device_{kMusa, 0};
  bool found_ = false;
  bool upcast_ = false;
  bool synchronizes_ = false;
  int foreign_ = -1;
  c10::Device foreign_device_{c10::kCPU};
  c10::ScalarType upcast_from_ = c10::ScalarType::Undefined;
  c10::ScalarType upcast_to_ = c10::ScalarType::Undefined;
  musaStream_t stream_ = nullptr;
  musaSimCost cost_{};
  c10::SmallVector<Shown, 6> shown_;
  c10::SmallVector<const ArgPlan*, 1> late_arguments_;
  c10::SmallVector<std::pair<const c10::StorageImpl*, c10::Storage>, 1> fresh_;
};

}  // namespace

void run_bridged(const c10::OperatorHandle& op, const Plan& plan, Stack* stack) { Call(plan, stack).run(op); }

}  // namespace musa
