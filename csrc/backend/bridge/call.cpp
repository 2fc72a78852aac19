#include "backend/bridge/call.h"

#include <ATen/core/Tensor.h>

#include <optional>

#include "backend/bridge/cost.h"
#include "backend/bridge/frame.h"
#include "backend/bridge/host_kernel.h"
#include "backend/bridge/wrap.h"
#include "backend/generator.h"
#include "backend/runtime/device.h"
#include "backend/runtime/one_thread.h"

namespace musa {

namespace {

using c10::IValue;
using torch::jit::Stack;

class Call final : private Frame {
 public:
  Call(const Plan& plan, Stack* stack) : Frame(plan), stack_(stack), base_(stack->size() - plan.arg_count) {}

  void run(const c10::OperatorHandle& op) {
    {
      BelowAutograd state;
      show_arguments();
      check_devices(any_on_card() ? c10::DeviceIndex{-1} : device_argument());
      AllocateOnCard memory(device().index(), stream());
      if (C10_UNLIKELY(!late_arguments_.empty())) {
        replace_late_arguments();
      }
      if (C10_UNLIKELY(plan_.native != nullptr && plan_.native->cost != nullptr)) {
        set_cost(plan_.native->cost(stack_->data() + base_));
      } else if (C10_UNLIKELY(plan_.facts.flops != FlopRule::kNone)) {
        add_flops(operator_flops(plan_.facts.flops, *stack_, base_));
      }
      std::optional<OneThread> alone;
      if (C10_UNLIKELY(plan_.has(kSerialAccumulation) && argument(3).toBool())) {
        alone.emplace();
      }
      run_host_kernel(op, plan_.native, *plan_.counters, stack_);
      if (C10_UNLIKELY(upcast_)) {
        cast_results_back();
      }
    }
    write_back();
    take_results();
    launch();
  }

 private:
  IValue& argument(size_t index) { return (*stack_)[base_ + index]; }

  c10::DeviceIndex device_argument() {
    c10::DeviceIndex index = -1;
    for (const ArgPlan& plan : plan_.args) {
      const IValue& value = argument(plan.index);
      if (plan.kind == ArgKind::kDevice && value.isDevice() && value.toDevice().type() == kMusa) {
        index = value.toDevice().index();
      }
    }
    return index;
  }

  void show_value(IValue& value, const ArgPlan& plan) {
    const at::Tensor& tensor = value.toTensor();
    if (C10_LIKELY(tensor.defined() && tensor.device().type() == kMusa)) {
      value = IValue(at::Tensor(show_once(std::move(value).toTensor(), plan)));
    } else if (tensor.defined()) {
      note_foreign(tensor, plan);
    }
  }

  void show_list(IValue& value, const ArgPlan& plan) {
    c10::List<at::Tensor> list = std::move(value).toTensorList();
    // A list that only the stack holds was made for this call: its elements are replaced where they stand.
    c10::List<at::Tensor> shown = list.use_count() == 1 ? list : list.copy();
    for (size_t i = 0; i < shown.size(); ++i) {
      at::Tensor element = shown.extract(i);
      shown.set(i, show_tensor(element, plan));
    }
    value = IValue(std::move(shown));
  }

  void show_optional_list(IValue& value, const ArgPlan& plan) {
    c10::List<std::optional<at::Tensor>> list;
    for (const IValue& element : value.toListRef()) {
      if (!element.isTensor()) {
        list.push_back(std::nullopt);
        continue;
      }
      const at::Tensor& tensor = element.toTensor();
      list.push_back(show_tensor(tensor, plan));
      if (plan_.has(kIndexes) && tensor.defined() &&
          (tensor.scalar_type() == c10::ScalarType::Bool || tensor.scalar_type() == c10::ScalarType::Byte)) {
        set_synchronizes();  // CUDA counts the mask's elements first
      }
    }
    value = IValue(std::move(list));
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
            show_optional_list(value, plan);
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
      MusaGenerator* generator = generator_for(given, device());
      const std::lock_guard<std::mutex> lock(generator->mutex_);
      value = IValue(cpu_generator_at(generator->reserve(1)));
    }
  }

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

  void take_results() {
    const size_t first = stack_->size() - plan_.return_count;
    for (size_t i = 0; i < plan_.return_count; ++i) {
      IValue& value = (*stack_)[first + i];
      if (C10_LIKELY(value.isTensor())) {
        value = IValue(take_tensor(value.toTensor(), i == 1 && plan_.has(kSecondResultOnCpu)));
      } else if (value.isTensorList()) {
        c10::List<at::Tensor> list;
        for (const auto& tensor : value.toTensorList()) {
          list.push_back(take_tensor(static_cast<const at::Tensor&>(tensor)));
        }
        value = IValue(std::move(list));
      }
    }
  }

  Stack* stack_;
  size_t base_;
  c10::SmallVector<const ArgPlan*, 1> late_arguments_;
};

}  // namespace

void run_bridged(const c10::OperatorHandle& op, const Plan& plan, Stack* stack) { Call(plan, stack).run(op); }

}  // namespace musa
