// One bridged call.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>

#include "backend/bridge/plan.h"

namespace musa {

/// Replaces the arguments on `stack` by the results, running the operator's CPU kernel on card memory.
/// Throws what CUDA throws for tensors on different devices.
void run_bridged(const c10::OperatorHandle& op, const Plan& plan, torch::jit::Stack* stack);

}  // namespace musa
