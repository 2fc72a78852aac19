#include "backend/bridge/bridge.h"

#include <ATen/core/Tensor.h>
#include <ATen/core/boxing/KernelFunction.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/jit_type.h>
#include <c10/util/SmallVector.h>

#include <algorithm>
#include <atomic>
#include <memory>
#include <mutex>
#include <unordered_map>

#include "backend/bridge/call.h"
#include "backend/bridge/plan.h"
#include "backend/graph/interception.h"

namespace musa {

namespace {

using torch::jit::Stack;

/// One operator's kernel. The plan is made at the first call: import must stay cheap.
class BridgeKernel final : public c10::OperatorKernel {
 public:
  ~BridgeKernel() override { delete plan_.load(); }

  void operator()(const c10::OperatorHandle& op, c10::DispatchKeySet /*keys*/, Stack* stack) {
    const Plan* plan = plan_.load(std::memory_order_acquire);
    if (C10_UNLIKELY(plan == nullptr)) {
      auto made = std::make_unique<Plan>(op);
      if (plan_.compare_exchange_strong(plan, made.get())) {
        plan = made.release();
      }
    }
    run_bridged(op, *plan, stack);
  }

 private:
  std::atomic<const Plan*> plan_{nullptr};
};

// An operator without tensor arguments reaches the device past the key that captures look for.
class FactoryKernel final : public c10::OperatorKernel {
 public:
  void operator()(const c10::OperatorHandle& op, c10::DispatchKeySet keys, Stack* stack) {
    if (!graph::intercept_factory(op, keys, stack)) {
      bridge_(op, keys, stack);
    }
  }

 private:
  BridgeKernel bridge_;
};

bool holds_tensors(const c10::Type& type) {
  return type.kind() == c10::TypeKind::TensorType ||
      std::any_of(type.containedTypes().begin(), type.containedTypes().end(), [](const c10::TypePtr& inner) {
           return holds_tensors(*inner);
         });
}

bool takes_tensors(const c10::FunctionSchema& schema) {
  return std::any_of(schema.arguments().begin(), schema.arguments().end(), [](const c10::Argument& argument) {
    return holds_tensors(*argument.type());
  });
}

c10::KernelFunction make_kernel(const c10::FunctionSchema& schema) {
  return takes_tensors(schema) ? c10::KernelFunction::makeFromBoxedFunctor(std::make_unique<BridgeKernel>())
                               : c10::KernelFunction::makeFromBoxedFunctor(std::make_unique<FactoryKernel>());
}

// Operators outside the explicit list: other libraries' (they may come after us), and those without any CPU kernel.
void fallback(const c10::OperatorHandle& op, c10::DispatchKeySet keys, Stack* stack) {
  static auto* mutex = new std::mutex();
  static auto* kernels = new std::unordered_map<c10::OperatorName, std::unique_ptr<BridgeKernel>>();
  TORCH_CHECK_NOT_IMPLEMENTED(
      op.hasKernelForDispatchKey(c10::DispatchKey::CPU), "Could not run '", op.operator_name(),
      "' with arguments from the 'musa' backend: it has neither a musa kernel nor a CPU kernel to bridge to. "
      "Register one for dispatch key PrivateUse1, or run this op on another device.");
  BridgeKernel* kernel = nullptr;
  {
    std::lock_guard<std::mutex> lock(*mutex);
    std::unique_ptr<BridgeKernel>& slot = (*kernels)[op.operator_name()];
    if (slot == nullptr) {
      slot = std::make_unique<BridgeKernel>();
    }
    kernel = slot.get();
  }
  (*kernel)(op, keys, stack);
}

}  // namespace

void register_bridge() {
  static const bool once = [] {
    c10::Dispatcher& dispatcher = c10::Dispatcher::singleton();
    // Registrations live as long as the process.
    auto* registrations = new std::vector<c10::RegistrationHandleRAII>();
    for (const c10::OperatorName& name : dispatcher.getAllOpNames()) {
      if (name.name.rfind("aten::", 0) != 0) {
        continue;
      }
      const auto op = dispatcher.findSchema(name);
      const bool has_kernel = op.has_value() &&
          (op->hasKernelForDispatchKey(c10::DispatchKey::CPU) || native_kernel(c10::toString(name)) != nullptr);
      if (!has_kernel || op->hasKernelForDispatchKey(c10::DispatchKey::PrivateUse1)) {
        continue;
      }
      registrations->push_back(dispatcher.registerImpl(
          name, c10::DispatchKey::PrivateUse1, make_kernel(op->schema()), std::nullopt, nullptr,
          "torch_musa_sim bridge"));
    }
    registrations->push_back(dispatcher.registerFallback(
        c10::DispatchKey::PrivateUse1, c10::KernelFunction::makeFromBoxedFunction<&fallback>(),
        "torch_musa_sim bridge"));
    return true;
  }();
  (void)once;
}

}  // namespace musa
