// The one place where an operator's work is done on host tensors over card memory.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>

#include "backend/bridge/counters.h"
#include "backend/native/kernels.h"

namespace musa {

/// Replaces the operator's arguments on `stack`, all of them host tensors, by its results: by `native`, or where that
/// is null by PyTorch's CPU kernel.
inline void run_host_kernel(
    const c10::OperatorHandle& op, const NativeKernel* native, OpCounters& counters, torch::jit::Stack* stack) {
  constexpr c10::DispatchKeySet kCpu(c10::DispatchKey::CPU);
  if (native == nullptr) {
    op.redispatchBoxed(kCpu, stack);
    return;
  }
  detail::ran_reference = false;
  native->function.callBoxed(op, kCpu, stack);
  if (!detail::ran_reference) {
    counters.native_calls.fetch_add(1, std::memory_order_relaxed);
  }
}

}  // namespace musa
