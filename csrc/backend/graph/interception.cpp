#include "backend/graph/interception.h"

#include <vector>

#include "backend/graph/operator_class.h"
#include "backend/graph/recorder.h"
#include "backend/runtime/stream.h"
#include "musart/musart_capture.h"

namespace musa::graph {

namespace {

using torch::jit::Stack;

constexpr c10::DispatchKeySet kBelow(c10::DispatchKeySet::FULL_AFTER, kCaptureKey);

// The card an operator runs on; -1 when none of its tensors is on one.
c10::DeviceIndex card_of(const Plan& plan, const Stack& stack) {
  const size_t first = stack.size() - plan.arg_count;
  c10::DeviceIndex named = -1;
  for (const ArgPlan& argument : plan.args) {
    const c10::IValue& value = stack[first + argument.index];
    if (value.isTensor()) {
      const at::Tensor& tensor = value.toTensor();
      if (tensor.defined() && tensor.device().type() == kMusa) {
        return tensor.device().index();
      }
    } else if (value.isDevice()) {
      if (value.toDevice().type() == kMusa) {
        named = resolve_device(value.toDevice().index());
      }
    } else if (value.isList() && argument.kind != ArgKind::kTensor) {
      for (const c10::IValue& element : value.toListRef()) {
        if (element.isTensor() && element.toTensor().defined() && element.toTensor().device().type() == kMusa) {
          return element.toTensor().device().index();
        }
      }
    }
  }
  return named;
}

// Hands an operator on a captured stream to the capture. False when the stream isn't captured.
bool handle_captured(const c10::OperatorHandle& op, const OperatorClass& kind, c10::DispatchKeySet keys, Stack* stack) {
  const c10::DeviceIndex card = card_of(kind.plan, *stack);
  if (card < 0) {
    return false;
  }
  const musaStream_t stream = current_native_stream(card);
  auto* recorder = static_cast<Recorder*>(musaSimCaptureOwner(stream));
  if (recorder != nullptr) {
    recorder->handle(op, kind, keys, stream, stack);
  }
  return recorder != nullptr;
}

void on_operator(const c10::OperatorHandle& op, c10::DispatchKeySet keys, Stack* stack) {
  if (musaSimCaptureCount() == 0) {
    intercept_thread(false);  // a thread that was left behind by a capture it took part in
  } else if (has_device_kernel(op) && handle_captured(op, operator_class(op), keys & kBelow, stack)) {
    return;
  }
  op.redispatchBoxed(keys & kBelow, stack);
}

}  // namespace

void install_interception() {
  static const bool once = [] {
    c10::Dispatcher& dispatcher = c10::Dispatcher::singleton();
    auto* registrations = new std::vector<c10::RegistrationHandleRAII>();  // as long as the process
    // Explicitly, or a composite kernel would win over the fallback and split the operator.
    for (const c10::OperatorName& name : dispatcher.getAllOpNames()) {
      const auto op = dispatcher.findSchema(name);
      if (op.has_value() && op->hasKernelForDispatchKey(c10::DispatchKey::PrivateUse1) &&
          !op->hasKernelForDispatchKey(kCaptureKey)) {
        registrations->push_back(dispatcher.registerImpl(
            name, kCaptureKey, c10::KernelFunction::makeFromBoxedFunction<&on_operator>(), std::nullopt, nullptr,
            "torch_musa_sim graphs"));
      }
    }
    registrations->push_back(dispatcher.registerFallback(
        kCaptureKey, c10::KernelFunction::makeFromBoxedFunction<&on_operator>(), "torch_musa_sim graphs"));
    return true;
  }();
  (void)once;
}

void intercept_thread(bool on) { c10::impl::tls_set_dispatch_key_included(kCaptureKey, on); }

bool intercept_factory(const c10::OperatorHandle& op, c10::DispatchKeySet keys, Stack* stack) {
  if (musaSimCaptureCount() == 0 || c10::impl::tls_is_dispatch_key_excluded(kCaptureKey)) {
    return false;
  }
  return handle_captured(op, operator_class(op), keys, stack);
}

}  // namespace musa::graph
