// rrelu_with_noise: leaky ReLU whose negative slope is drawn per element while training and is the mean otherwise.
#include <ATen/Dispatch.h>
#include <ATen/OpMathType.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/leaky_relu.h>
#include <torch/library.h>

#include "backend/ops/devices.h"
#include "backend/ops/random/fill.h"

namespace musa::random {
namespace {

using Given = std::optional<at::Generator>;

at::Tensor& rrelu_out(
    const at::Tensor& self, at::Tensor& noise, const at::Scalar& lower, const at::Scalar& upper, bool training,
    Given given, at::Tensor& out) {
  common_device("aten::rrelu_with_noise", {{"out", out}, {"self", self}, {"noise", noise}});
  TORCH_CHECK(
      self.sizes() == noise.sizes(), "noise tensor shape must match self tensor shape. Got self.shape = ", self.sizes(),
      " noise.shape = ", noise.sizes());
  TORCH_CHECK(
      noise.scalar_type() == self.scalar_type(), "expected scalar type ", self.scalar_type(), " but found ",
      noise.scalar_type());
  TORCH_CHECK(
      out.scalar_type() == self.scalar_type(), "expected scalar type ", self.scalar_type(), " but found ",
      out.scalar_type());
  out.resize_(self.sizes());
  if (self.numel() == 0) {
    return out;
  }
  generator_for(given, self.device());  // refuse a wrong generator also where none is needed
  const double from = lower.toDouble();
  const double to = upper.toDouble();
  CardScope scope(self.device(), "aten::rrelu_with_noise");
  const at::Tensor host_out = scope.written(out);
  if (!training) {
    host_out.copy_(at::leaky_relu(scope.view(self), (from + to) / 2));
    return out;
  }
  const at::Tensor source = scope.view(self).contiguous();
  const at::Tensor host_noise = scope.written(noise);
  const PhiloxPosition position = draw_position(given, self.device());
  AT_DISPATCH_FLOATING_TYPES_AND2(at::kHalf, at::kBFloat16, source.scalar_type(), "rrelu_with_noise_out_musa", [&] {
    using Compute = typename Draw<scalar_t>::Compute;
    const scalar_t* x = source.const_data_ptr<scalar_t>();
    write_in_order<scalar_t>(host_noise, [&](scalar_t* slopes) {
      write_in_order<scalar_t>(host_out, [&](scalar_t* y) {
        fill_values<Draw<scalar_t>::kWords>(
            slopes, source.numel(), position, [&](const uint32_t* words, scalar_t* slope, int64_t index) {
              const Compute value = static_cast<Compute>(x[index]);
              if (value <= 0) {
                const Compute drawn =
                    Draw<scalar_t>::unit(words) * static_cast<Compute>(to - from) + static_cast<Compute>(from);
                *slope = static_cast<scalar_t>(drawn);
                y[index] = static_cast<scalar_t>(value * static_cast<Compute>(*slope));
              } else {
                *slope = static_cast<scalar_t>(1);
                y[index] = x[index];
              }
            });
      });
    });
  });
  return out;
}

at::Tensor rrelu(
    const at::Tensor& self, at::Tensor& noise, const at::Scalar& lower, const at::Scalar& upper, bool training,
    Given given) {
  at::Tensor out = at::empty_like(self);
  return rrelu_out(self, noise, lower, upper, training, std::move(given), out);
}

at::Tensor& rrelu_(
    at::Tensor& self, at::Tensor& noise, const at::Scalar& lower, const at::Scalar& upper, bool training, Given given) {
  return rrelu_out(self, noise, lower, upper, training, std::move(given), self);
}

}  // namespace

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("rrelu_with_noise", rrelu);
  m.impl("rrelu_with_noise_", rrelu_);
  m.impl("rrelu_with_noise.out", rrelu_out);
}

}  // namespace musa::random
