// SwiGLU, silu(gate) * up, as one kernel, and its derivative. See swiglu.py, which compiles and registers the rest.
#include <ATen/Dispatch.h>
#include <ATen/OpMathType.h>
#include <ATen/Parallel.h>
#include <ATen/ops/empty_like.h>
#include <torch/library.h>
#include <torch_musa_sim/host_kernel.h>

#include <cmath>

namespace {

constexpr int64_t kGrain = 4096;  // elements per thread at least

void check(const at::Tensor& gate, const at::Tensor& up) {
  TORCH_CHECK(
      gate.sizes() == up.sizes() && gate.scalar_type() == up.scalar_type(),
      "swiglu takes gate and up of one shape and dtype, got ", gate.sizes(), " ", gate.scalar_type(), " and ",
      up.sizes(), " ", up.scalar_type());
}

at::Tensor forward(const at::Tensor& gate_argument, const at::Tensor& up_argument) {
  check(gate_argument, up_argument);
  const at::Tensor gate = gate_argument.contiguous();
  const at::Tensor up = up_argument.contiguous();
  at::Tensor out = at::empty_like(gate);
  const int64_t count = gate.numel();
  const musa::KernelCost cost{.flops = 6.0 * static_cast<double>(count)};  // exp, add, divide, two products, a sign
  AT_DISPATCH_FLOATING_TYPES_AND2(at::kHalf, at::kBFloat16, gate.scalar_type(), "swiglu", [&] {
    using wide = at::opmath_type<scalar_t>;
    musa::launch_host_kernel(
        "example::swiglu", {musa::reads(gate), musa::reads(up), musa::writes(out)}, cost, [&](void* const* pointers) {
          const auto* g = static_cast<const scalar_t*>(pointers[0]);
          const auto* u = static_cast<const scalar_t*>(pointers[1]);
          auto* o = static_cast<scalar_t*>(pointers[2]);
          at::parallel_for(0, count, kGrain, [&](int64_t begin, int64_t end) {
            for (int64_t i = begin; i < end; ++i) {
              const wide x = g[i];
              o[i] = static_cast<scalar_t>(x / (1 + std::exp(-x)) * static_cast<wide>(u[i]));
            }
          });
        });
  });
  return out;
}

std::tuple<at::Tensor, at::Tensor> backward(
    const at::Tensor& grad_argument, const at::Tensor& gate_argument, const at::Tensor& up_argument) {
  check(gate_argument, up_argument);
  const at::Tensor grad = grad_argument.contiguous();
  const at::Tensor gate = gate_argument.contiguous();
  const at::Tensor up = up_argument.contiguous();
  at::Tensor grad_gate = at::empty_like(gate);
  at::Tensor grad_up = at::empty_like(up);
  const int64_t count = gate.numel();
  const musa::KernelCost cost{.flops = 11.0 * static_cast<double>(count)};
  AT_DISPATCH_FLOATING_TYPES_AND2(at::kHalf, at::kBFloat16, gate.scalar_type(), "swiglu_backward", [&] {
    using wide = at::opmath_type<scalar_t>;
    musa::launch_host_kernel(
        "example::swiglu_backward",
        {musa::reads(grad), musa::reads(gate), musa::reads(up), musa::writes(grad_gate), musa::writes(grad_up)}, cost,
        [&](void* const* pointers) {
          const auto* d = static_cast<const scalar_t*>(pointers[0]);
          const auto* g = static_cast<const scalar_t*>(pointers[1]);
          const auto* u = static_cast<const scalar_t*>(pointers[2]);
          auto* dg = static_cast<scalar_t*>(pointers[3]);
          auto* du = static_cast<scalar_t*>(pointers[4]);
          at::parallel_for(0, count, kGrain, [&](int64_t begin, int64_t end) {
            for (int64_t i = begin; i < end; ++i) {
              const wide x = g[i];
              const wide sigmoid = 1 / (1 + std::exp(-x));
              const wide upstream = d[i];
              dg[i] = static_cast<scalar_t>(upstream * static_cast<wide>(u[i]) * sigmoid * (1 + x * (1 - sigmoid)));
              du[i] = static_cast<scalar_t>(upstream * x * sigmoid);
            }
          });
        });
  });
  return {grad_gate, grad_up};
}

}  // namespace

TORCH_LIBRARY(example, library) {
  library.def("swiglu(Tensor gate, Tensor up) -> Tensor");
  library.def("swiglu_backward(Tensor grad, Tensor gate, Tensor up) -> (Tensor, Tensor)");
}

TORCH_LIBRARY_IMPL(example, PrivateUse1, library) {
  library.impl("swiglu", &forward);
  library.impl("swiglu_backward", &backward);
}
