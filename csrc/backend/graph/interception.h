// How a capture sees operators: while a thread may work on a captured stream, its thread-local dispatch keys include
// one that ranks between autograd and the device's kernels. No capture, no cost.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

namespace musa::graph {

/// A key of torch's for use out of tree; nothing in torch registers a kernel for it.
constexpr c10::DispatchKey kCaptureKey = c10::DispatchKey::CustomRNGKeyId;

/// Registers the handler for all operators of the device, at the first capture. Idempotent.
void install_interception();

/// Switches the calling thread's interception. Threads of the autograd engine inherit it with the rest of the state.
void intercept_thread(bool on);

/// As the handler does for an operator that reached the device past it (a factory: it has no tensor argument).
/// False when the calling thread's stream isn't being captured.
bool intercept_factory(const c10::OperatorHandle& op, c10::DispatchKeySet keys, torch::jit::Stack* stack);

/// While it lives, operators run as if nothing were being captured.
using WithoutInterception = c10::impl::ExcludeDispatchKeyGuard;

}  // namespace musa::graph
