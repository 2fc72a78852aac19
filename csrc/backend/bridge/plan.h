// What the bridge works out once per operator from its schema and the op table.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>

#include <string>
#include <vector>

#include "backend/bridge/counters.h"
#include "backend/bridge/op_table.h"
#include "backend/native/kernels.h"

namespace musa {

enum class ArgKind : uint8_t { kTensor, kOptionalTensor, kTensorList, kOptionalTensorList, kDevice, kGenerator };

/// An argument that the bridge must look at; all others pass through.
struct ArgPlan {
  uint16_t index;
  ArgKind kind;
  bool written;
  bool read_and_written;  // in place: the cost model counts its bytes twice
};

struct Plan {
  explicit Plan(const c10::OperatorHandle& op);

  std::string name;    // "aten::add.Tensor"
  std::string method;  // "add", for the error texts
  size_t arg_count;
  size_t return_count;
  std::vector<ArgPlan> args;
  std::vector<std::string> arg_names;
  bool writes;
  OpFacts facts;
  bool upcasts;
  uint64_t accepted_dtypes;  // of the first tensor; see strict.h
  OpCounters* counters;
  const NativeKernel* native;  // in the place of the CPU kernel; may be null

  bool has(OpFlags flag) const { return (facts.flags & flag) != 0; }
};

}  // namespace musa
