// Compiled code as an operator of the dispatcher, "musa_sim::compiled_region": what records operators (a graph that is
// captured) records a run of generated code as one of them, and runs it again by it.
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/custom_class.h>

#include <vector>

namespace musa {

/// A run of generated code with everything but its musa arguments.
class CompiledCall : public torch::CustomClassHolder {
 public:
  /// The results that are tensors, in order.
  virtual std::vector<at::Tensor> run(const std::vector<at::Tensor>& arguments) = 0;
};

/// Whether the calling thread's operators are being recorded.
bool operators_are_recorded();

/// Runs `call` through the dispatcher.
std::vector<at::Tensor> run_as_operator(
    const std::vector<at::Tensor>& arguments, c10::intrusive_ptr<CompiledCall> call);

}  // namespace musa
