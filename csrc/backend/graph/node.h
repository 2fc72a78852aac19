// One captured operator: a kernel, its arguments made ready, and where its results go.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>
#include <c10/util/intrusive_ptr.h>

#include <optional>
#include <string>
#include <vector>

#include "backend/bridge/counters.h"
#include "backend/bridge/launch.h"
#include "backend/graph/allocation.h"
#include "backend/native/kernels.h"

namespace musa::graph {

/// Memory that a node reads or writes and its graph doesn't own.
struct ExternalInput {
  c10::weak_intrusive_ptr<c10::StorageImpl> storage;
  const void* address;
  size_t nbytes;
  std::string argument;
};

struct Node {
  /// Runs the kernel on the card's memory, from `start_ns` on, and returns when it ends. Workspace is that of `stream`.
  int64_t run(torch::jit::Stack& stack, musaStream_t stream, int64_t start_ns);

  /// A result that the kernel returns: which one, which element when it is a list, and the tensor that was promised.
  struct Result {
    size_t index;
    std::optional<size_t> element;
    at::Tensor promised;
  };

  /// Memory of the card, or of the host for a copy, that the kernel touches.
  struct Access {
    at::Tensor tensor;
    bool written;
  };

  std::optional<c10::OperatorHandle> op;                // none: a pause
  c10::DispatchKey key = c10::DispatchKey::Undefined;  // CPU: bridged, PrivateUse1: the device's own kernel
  std::vector<c10::IValue> arguments;            // card tensors own nothing
  std::vector<size_t> generators;                // arguments that get numbers of the card's sequence at each replay
  at::Generator generator;                       // which sequence
  std::vector<PlannedBlock> blocks;
  bool placed = false;  // the blocks know their allocations
  std::vector<Result> results;
  std::vector<Access> accesses;
  bool one_thread = false;

  c10::DeviceIndex card = 0;
  musaSimCost cost{};
  std::optional<CopyRoute> route;  // of a copy between two devices
  int64_t device_ns = -1;  // -1: the kernel tells
  OpCounters* counters = nullptr;
  const NativeKernel* native = nullptr;  // in the place of the CPU kernel

  int number = 0;
  std::vector<int> dependencies;
  std::string name;
  std::string label;  // result types and sizes, for the drawing
  std::vector<ExternalInput> external;

 private:
  int64_t run_kernel(torch::jit::Stack& stack, musaStream_t stream, int64_t start_ns);
};

}  // namespace musa::graph
