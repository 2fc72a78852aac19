// The bridge for tensors that are made of several strided ones: sparse COO (indices and values) and strided nested (a
// buffer). Each is rebuilt as a CPU tensor of its kind over views of its parts.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>

namespace musa {

/// Replaces the arguments on `stack` by the results of the operator's CPU kernel on card memory. Throws what CUDA
/// throws for tensors on different devices.
void run_composed(const c10::OperatorHandle& op, torch::jit::Stack* stack);

}  // namespace musa
