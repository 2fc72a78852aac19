// Histogram with equal bins. The CPU takes floating types only; CUDA also takes integers, and mixture-of-experts
// models count their experts with it.
#include <ATen/Dispatch.h>
#include <ATen/native/Resize.h>
#include <ATen/ops/aminmax.h>
#include <ATen/ops/histc.h>
#include <ATen/ops/zeros.h>
#include <torch/library.h>

#include "backend/bridge/host_view.h"
#include "backend/ops/devices.h"
#include "backend/runtime/sync_debug.h"

namespace musa {
namespace {

struct Bounds {
  int64_t low;
  int64_t high;
};

/// The given bounds; those of the values when they are equal; one apart on either side when these are equal too.
Bounds integer_bounds(const at::Tensor& values, const at::Scalar& min, const at::Scalar& max) {
  Bounds bounds{min.to<int64_t>(), max.to<int64_t>()};
  if (bounds.low == bounds.high && values.numel() > 0) {
    const auto [low, high] = at::aminmax(values);
    bounds = {low.item<int64_t>(), high.item<int64_t>()};
  }
  if (bounds.low == bounds.high) {
    --bounds.low;
    ++bounds.high;
  }
  TORCH_CHECK(
      bounds.low < bounds.high, "torch.histc: max must be larger than min, got min=", bounds.low,
      " and max=", bounds.high);
  return bounds;
}

/// Counts of the values in each of `bins` equal bins, the last one closed; exact integer arithmetic, as on CUDA.
/// `values` is a CPU tensor of any shape; returns (bins,) of the same dtype, which wraps around when it is too narrow.
at::Tensor integer_histogram(const at::Tensor& values, int64_t bins, const at::Scalar& min, const at::Scalar& max) {
  const Bounds bounds = integer_bounds(values, min, max);
  const at::Tensor counts = at::zeros({bins}, values.options().dtype(c10::kLong));
  auto* count = counts.mutable_data_ptr<int64_t>();
  const at::Tensor flat = values.contiguous();
  const __int128 range = static_cast<__int128>(bounds.high) - bounds.low;
  AT_DISPATCH_INTEGRAL_TYPES(flat.scalar_type(), "histc", [&] {
    const auto* value = flat.const_data_ptr<scalar_t>();
    for (int64_t i = 0; i < flat.numel(); ++i) {
      const auto v = static_cast<int64_t>(value[i]);
      if (v >= bounds.low && v <= bounds.high) {
        const auto bin = static_cast<int64_t>((static_cast<__int128>(v) - bounds.low) * bins / range);
        ++count[std::min(bin, bins - 1)];
      }
    }
  });
  return counts.to(values.scalar_type());
}

at::Tensor histogram_of(const at::Tensor& self, int64_t bins, const at::Scalar& min, const at::Scalar& max) {
  constexpr const char* kOp = "aten::histc";
  const bool integral = c10::isIntegralType(self.scalar_type(), /*includeBool=*/false);
  TORCH_CHECK(!integral || bins > 0, "torch.histc(): bins must be > 0, but got ", bins);
  CardScope scope(self.device(), kOp);
  if (min.to<double>() == max.to<double>()) {
    note_synchronization();
    scope.set_synchronizes();  // the bounds come from the values, which CUDA reads on the host
  }
  const at::Tensor values = scope.view(self);
  return scope.result(integral ? integer_histogram(values, bins, min, max) : at::histc(values, bins, min, max));
}

at::Tensor& histogram_into(
    const at::Tensor& self, int64_t bins, const at::Scalar& min, const at::Scalar& max, at::Tensor& out) {
  common_device("aten::histc.out", {{"out", out}, {"self", self}});
  TORCH_CHECK(
      self.scalar_type() == out.scalar_type(), "torch.histogram: input tensor and hist tensor should have the same ",
      "dtype, but got input ", self.dtype(), " and hist ", out.dtype());
  const at::Tensor result = histogram_of(self, bins, min, max);
  at::native::resize_output(out, result.sizes());
  return out.copy_(result);
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, library) {
  library.impl("histc", TORCH_FN(histogram_of));
  library.impl("histc.out", TORCH_FN(histogram_into));
}

}  // namespace
}  // namespace musa
