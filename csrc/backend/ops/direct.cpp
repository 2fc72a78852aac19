// The bridge without a stack, for the operators that small models call most: same kernel, same checks, same counters,
// about a fifth of a microsecond less per call (benchmarks/overhead.py).
#include <ATen/core/Tensor.h>
#include <ATen/ops/add_cpu_dispatch.h>
#include <ATen/ops/cat_cpu_dispatch.h>
#include <ATen/ops/mm_cpu_dispatch.h>
#include <ATen/ops/mul_cpu_dispatch.h>
#include <ATen/ops/native_layer_norm_cpu_dispatch.h>
#include <c10/util/SmallVector.h>
#include <torch/library.h>

#include "backend/bridge/flops.h"
#include "backend/bridge/frame.h"
#include "backend/native/mm.h"
#include "backend/native/norm.h"

namespace musa {

namespace {

const Plan& plan_of(const char* name, const char* overload) {
  return *new Plan(c10::Dispatcher::singleton().findSchemaOrThrow(name, overload));
}

at::Tensor take(Frame& frame, const at::Tensor& result) { return frame.take_tensor(result); }

std::tuple<at::Tensor, at::Tensor, at::Tensor> take(
    Frame& frame, const std::tuple<at::Tensor, at::Tensor, at::Tensor>& results) {
  const auto& [first, second, third] = results;
  return {frame.take_tensor(first), frame.take_tensor(second), frame.take_tensor(third)};
}

/// Runs `kernel` on card memory between the showing of arguments (`show`, below autograd) and the taking of its
/// results.
template <class Show, class Kernel>
auto run(Frame& frame, Show&& show, Kernel&& kernel) {
  decltype(kernel()) results;
  {
    BelowAutograd state;
    show();
    frame.check_devices();
    AllocateOnCard memory(frame.device().index(), frame.stream());
    results = kernel();
  }
  auto taken = take(frame, results);
  frame.launch();
  return taken;
}

/// A call of a kernel of ours, as run_host_kernel counts it.
template <class Kernel>
auto counted(const Plan& plan, Kernel&& kernel) {
  detail::ran_reference = false;
  auto results = kernel();
  if (!detail::ran_reference) {
    plan.counters->native_calls.fetch_add(1, std::memory_order_relaxed);
  }
  return results;
}

template <class Kernel>
at::Tensor binary(const Plan& plan, const at::Tensor& self, const at::Tensor& other, Kernel&& kernel) {
  Frame frame(plan);
  at::Tensor a;
  at::Tensor b;
  return run(
      frame,
      [&] {
        a = frame.show_tensor(self, plan.args[0]);
        b = frame.show_tensor(other, plan.args[1]);
      },
      [&] { return kernel(frame, a, b); });
}

at::Tensor mm(const at::Tensor& self, const at::Tensor& mat2) {
  static const Plan& plan = plan_of("aten::mm", "");
  return binary(plan, self, mat2, [](Frame& frame, const at::Tensor& a, const at::Tensor& b) {
    at::Tensor result = plan.native != nullptr ? counted(plan, [&] { return mm_on_host(a, b); }) : at::cpu::mm(a, b);
    frame.add_flops(mm_flops(a.size(0), b.size(1), a.size(1)));
    return result;
  });
}

at::Tensor add(const at::Tensor& self, const at::Tensor& other, const at::Scalar& alpha) {
  static const Plan& plan = plan_of("aten::add", "Tensor");
  return binary(
      plan, self, other, [&](Frame&, const at::Tensor& a, const at::Tensor& b) { return at::cpu::add(a, b, alpha); });
}

at::Tensor mul(const at::Tensor& self, const at::Tensor& other) {
  static const Plan& plan = plan_of("aten::mul", "Tensor");
  return binary(plan, self, other, [](Frame&, const at::Tensor& a, const at::Tensor& b) { return at::cpu::mul(a, b); });
}

at::Tensor cat(const at::ITensorListRef& tensors, int64_t dim) {
  static const Plan& plan = plan_of("aten::cat", "");
  Frame frame(plan);
  c10::SmallVector<at::Tensor, 8> shown;
  return run(
      frame,
      [&] {
        for (const at::Tensor& tensor : tensors) {
          shown.push_back(frame.show_tensor(tensor, plan.args[0]));
        }
      },
      [&] { return at::cpu::cat(at::ArrayRef<at::Tensor>(shown.data(), shown.size()), dim); });
}

std::tuple<at::Tensor, at::Tensor, at::Tensor> native_layer_norm(
    const at::Tensor& input, c10::IntArrayRef normalized_shape, const std::optional<at::Tensor>& weight,
    const std::optional<at::Tensor>& bias, double eps) {
  static const Plan& plan = plan_of("aten::native_layer_norm", "");
  Frame frame(plan);
  at::Tensor x;
  std::optional<at::Tensor> scale;
  std::optional<at::Tensor> shift;
  return run(
      frame,
      [&] {
        x = frame.show_tensor(input, plan.args[0]);
        if (weight.has_value()) {
          scale = frame.show_tensor(*weight, plan.args[1]);
        }
        if (bias.has_value()) {
          shift = frame.show_tensor(*bias, plan.args[2]);
        }
      },
      [&] {
        if (plan.native == nullptr) {
          return at::cpu::native_layer_norm(x, normalized_shape, scale, shift, eps);
        }
        return counted(plan, [&] { return native_layer_norm_kernel(x, normalized_shape, scale, shift, eps); });
      });
}

}  // namespace

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("mm", &mm);
  m.impl("add.Tensor", &add);
  m.impl("mul.Tensor", &mul);
  m.impl("cat", &cat);
  m.impl("native_layer_norm", &native_layer_norm);
}

}  // namespace musa
