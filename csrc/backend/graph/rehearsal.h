// What an operator will return, without running it: shapes, strides, which result is which argument. The operator runs
// on stand-ins of its arguments, never on the arguments.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>

#include <unordered_map>
#include <vector>

#include "backend/graph/operator_class.h"
#include "musart/musart_sim.h"

namespace musa::graph {

class Rehearsal {
 public:
  enum class Stage {
    kMeta,  // tensors without memory
    kHost,  // the CPU kernel on zeros in host memory
    kCard,  // the device's kernel on zeros in card memory, on a stream that no clock knows
  };

  Rehearsal(Stage stage, c10::Device card) : stage_(stage), card_(card) {}

  /// Runs the operator on stand-ins of the last arguments of `stack`, which stays as it is.
  void run(const c10::OperatorHandle& op, const Plan& plan, const torch::jit::Stack& stack);

  const std::vector<c10::IValue>& results() const { return results_; }
  /// The argument that `result` stands in for; undefined when it is none.
  at::Tensor original(const at::Tensor& result) const;
  /// The argument's storage that a result's storage stands in for; empty when it is none.
  c10::Storage original(const c10::Storage& storage) const;

  struct StandIn {
    at::Tensor original;
    at::Tensor tensor;
  };
  const std::vector<StandIn>& stand_ins() const { return stand_ins_; }

 private:
  at::Tensor stand_in(const at::Tensor& tensor);
  c10::Storage stand_in(const c10::Storage& storage);

  Stage stage_;
  c10::Device card_;
  std::vector<StandIn> stand_ins_;
  std::unordered_map<const c10::StorageImpl*, c10::Storage> storages_;  // of the originals
  std::vector<c10::IValue> results_;
};

/// Rehearses on the stage that fits, or the next one where that fails. Throws what the operator throws.
Rehearsal rehearse(
    const c10::OperatorHandle& op, const OperatorClass& kind, c10::Device card, const torch::jit::Stack& stack);

/// `value` with each tensor replaced by `replace(tensor)`; tensor lists and lists of optional tensors are rebuilt.
template <class F>
c10::IValue map_tensors(const c10::IValue& value, ArgKind kind, const F& replace) {
  if (value.isTensor()) {
    return value.toTensor().defined() ? c10::IValue(replace(value.toTensor())) : value;
  }
  if (kind == ArgKind::kTensorList && value.isTensorList()) {
    c10::List<at::Tensor> list;
    for (const at::Tensor& tensor : value.toTensorVector()) {
      list.push_back(tensor.defined() ? replace(tensor) : tensor);
    }
    return list;
  }
  if (kind == ArgKind::kOptionalTensorList && value.isList()) {
    c10::List<std::optional<at::Tensor>> list;
    for (const c10::IValue& element : value.toListRef()) {
      const bool defined = element.isTensor() && element.toTensor().defined();
      list.push_back(defined ? std::optional<at::Tensor>(replace(element.toTensor())) : std::nullopt);
    }
    return list;
  }
  return value;
}

}  // namespace musa::graph
