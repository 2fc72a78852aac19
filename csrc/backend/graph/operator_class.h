// What a capture does with an operator; worked out once for each.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>

#include "backend/bridge/plan.h"

namespace musa::graph {

enum class Treatment {
  kExecute,  // views, sizes, memory: done at once, nothing runs on the card
  kRefuse,   // the host waits for the card
  kCopy,
  kRecord,
};

struct OperatorClass {
  explicit OperatorClass(const c10::OperatorHandle& op);

  Plan plan;
  Treatment treatment;
  /// The node re-enters the CPU kernel with CPU tensors; otherwise the device's own kernel with musa tensors.
  bool bridged;
  bool has_cpu_kernel;
  bool has_meta_kernel;
};

/// Whether the device runs the operator itself, by a kernel of its own or by the bridge. Composites it doesn't.
bool has_device_kernel(const c10::OperatorHandle& op);

const OperatorClass& operator_class(const c10::OperatorHandle& op);

}  // namespace musa::graph
