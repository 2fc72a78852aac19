#include "backend/bridge/compiled_operator.h"

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <torch/library.h>

namespace musa {
namespace {

constexpr const char* kName = "musa_sim::compiled_region";

void run_region(const c10::OperatorHandle& /*op*/, torch::jit::Stack* stack) {
  const c10::IValue call = torch::jit::pop(*stack);
  const std::vector<at::Tensor> arguments = torch::jit::pop(*stack).toTensorVector();
  torch::jit::push(*stack, static_cast<CompiledCall&>(*call.toCapsule()).run(arguments));
}

TORCH_LIBRARY_FRAGMENT(musa_sim, library) { library.def("compiled_region(Tensor[] arguments, Any call) -> Tensor[]"); }

TORCH_LIBRARY_IMPL(musa_sim, PrivateUse1, library) {
  library.impl("compiled_region", torch::CppFunction::makeFromBoxedFunction<&run_region>());
}

}  // namespace

bool operators_are_recorded() {
  // The key through which captures see operators (backend/graph).
  constexpr c10::DispatchKey kKey = c10::DispatchKey::CustomRNGKeyId;
  return c10::impl::tls_is_dispatch_key_included(kKey) && !c10::impl::tls_is_dispatch_key_excluded(kKey);
}

std::vector<at::Tensor> run_as_operator(
    const std::vector<at::Tensor>& arguments, c10::intrusive_ptr<CompiledCall> call) {
  static const c10::OperatorHandle op = c10::Dispatcher::singleton().findSchemaOrThrow(kName, "");
  torch::jit::Stack stack;
  stack.emplace_back(arguments);
  stack.emplace_back(c10::IValue::make_capsule(std::move(call)));
  op.callBoxed(stack);
  return stack.front().toTensorVector();
}

}  // namespace musa
