// Kernels of our own in the place of PyTorch's CPU kernels: functions of an operator's C++ signature that work on host
// tensors (the card's memory as the host sees it). The bridge, captured graphs and the direct entrances call them where
// they would have called the CPU kernel, so that checks, clock, counters, races and graphs are the same for both.
//
//   at::Tensor silu_and_mul(const at::Tensor& x) { ... }
//   MUSA_NATIVE_KERNEL("musa::silu_and_mul", silu_and_mul);
//
// A kernel that is given what it was not made for (a dtype, a layout) calls the reference itself, i.e. the CPU kernel
// or the plain formula, and says so by note_reference().
#pragma once

#include <ATen/core/boxing/KernelFunction.h>
#include <ATen/core/ivalue.h>

#include <string>
#include <string_view>

namespace musa {

/// What a call costs on the modelled card. `bytes` below 0: those of all arguments and results.
struct OpCost {
  double flops = 0;
  double bytes = -1;
};
/// From the operator's arguments, in the order of its schema. Only shapes, dtypes and numbers may be looked at: while a
/// graph is captured there are no values.
using CostRule = OpCost (*)(const c10::IValue* arguments);

struct NativeKernel {
  std::string name;  // "aten::mm", "aten::mm.out"
  c10::KernelFunction function;
  CostRule cost;  // null: the operator table's rule
};

/// The kernel of the operator of this full name; nullptr where there is none or TORCH_MUSA_SIM_NATIVE switches it off.
const NativeKernel* native_kernel(const std::string& name);

/// Whether TORCH_MUSA_SIM_NATIVE leaves kernels of this name on, which is as in native_kernel or without namespace and
/// overload ("mm").
bool native_enabled(std::string_view name);

namespace detail {
extern constinit thread_local bool ran_reference __attribute__((tls_model("initial-exec"), visibility("hidden")));
void add_native_kernel(NativeKernel kernel);
}  // namespace detail

/// Called by a kernel of ours when it hands the work to its reference.
inline void note_reference() { detail::ran_reference = true; }

class NativeRegistration {
 public:
  template <class Function>
  NativeRegistration(const char* name, Function* function, CostRule cost = nullptr) {
    detail::add_native_kernel({name, c10::KernelFunction::makeFromUnboxedRuntimeFunction(function), cost});
  }
};

#define MUSA_NATIVE_JOIN2(a, b) a##b
#define MUSA_NATIVE_JOIN(a, b) MUSA_NATIVE_JOIN2(a, b)
/// MUSA_NATIVE_KERNEL("aten::mm", mm) or MUSA_NATIVE_KERNEL("aten::mm", mm, mm_cost), at namespace scope.
#define MUSA_NATIVE_KERNEL(...) \
  static const ::musa::NativeRegistration MUSA_NATIVE_JOIN(native_kernel_, __COUNTER__)(__VA_ARGS__)

}  // namespace musa
