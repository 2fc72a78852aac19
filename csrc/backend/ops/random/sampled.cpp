// Distributions drawn by rejection: poisson, binomial, _standard_gamma, _sample_dirichlet.
#include <ATen/Dispatch.h>
#include <ATen/ExpandUtils.h>
#include <ATen/ops/empty.h>
#include <torch/library.h>

#include <atomic>
#include <vector>

#include "backend/ops/devices.h"
#include "backend/ops/random/fill.h"
#include "backend/ops/random/samplers.h"

namespace musa::random {
namespace {

using Given = std::optional<at::Generator>;
constexpr int64_t kGrain = 256;

/// Calls `sample(index, stream)` for each element in parallel.
template <typename Sample>
void for_elements(int64_t count, PhiloxPosition position, const Sample& sample) {
  for_ranges(count, kGrain, [&](int64_t begin, int64_t end) {
    for (int64_t index = begin; index < end; ++index) {
      ElementStream stream(position, index);
      sample(index, stream);
    }
  });
}

at::Tensor poisson(const at::Tensor& self, Given given) {
  const PhiloxPosition position = draw_position(given, self.device());
  CardScope scope(self.device(), "aten::poisson");
  const at::Tensor rates = scope.view(self).contiguous();
  const at::Tensor result = at::empty(rates.sizes(), rates.options());
  std::atomic<bool> valid{true};
  AT_DISPATCH_FLOATING_TYPES_AND2(at::kHalf, at::kBFloat16, rates.scalar_type(), "poisson_musa", [&] {
    const scalar_t* rate = rates.const_data_ptr<scalar_t>();
    scalar_t* value = result.mutable_data_ptr<scalar_t>();
    for_elements(rates.numel(), position, [&](int64_t index, ElementStream& stream) {
      if (rate[index] >= 0) {
        value[index] = static_cast<scalar_t>(sample_poisson(static_cast<double>(rate[index]), stream));
      } else {
        valid.store(false, std::memory_order_relaxed);
      }
    });
  });
  TORCH_CHECK(valid.load(), "invalid Poisson rate, expected rate to be non-negative");
  return scope.result(result);
}

at::Tensor binomial(const at::Tensor& count, const at::Tensor& prob, Given given) {
  common_device("aten::binomial", {{"count", count}, {"prob", prob}});
  TORCH_CHECK_VALUE(
      at::isFloatingType(count.scalar_type()),
      "binomial only supports floating-point dtypes for count, got: ", count.scalar_type());
  TORCH_CHECK_VALUE(
      at::isFloatingType(prob.scalar_type()),
      "binomial only supports floating-point dtypes for prob, got: ", prob.scalar_type());
  TORCH_CHECK(
      prob.scalar_type() == count.scalar_type(), "Found dtype ", prob.scalar_type(), " but expected ",
      count.scalar_type());
  const PhiloxPosition position = draw_position(given, count.device());
  CardScope scope(count.device(), "aten::binomial");
  const std::vector<int64_t> shape = at::infer_size(count.sizes(), prob.sizes());
  const at::Tensor counts = scope.view(count).expand(shape).contiguous();
  const at::Tensor probs = scope.view(prob).expand(shape).contiguous();
  const at::Tensor result = at::empty(shape, counts.options());
  AT_DISPATCH_FLOATING_TYPES_AND2(at::kHalf, at::kBFloat16, counts.scalar_type(), "binomial_musa", [&] {
    const scalar_t* n = counts.const_data_ptr<scalar_t>();
    const scalar_t* p = probs.const_data_ptr<scalar_t>();
    scalar_t* value = result.mutable_data_ptr<scalar_t>();
    for_elements(counts.numel(), position, [&](int64_t index, ElementStream& stream) {
      value[index] =
          static_cast<scalar_t>(sample_binomial(static_cast<double>(n[index]), static_cast<double>(p[index]), stream));
    });
  });
  return scope.result(result);
}

at::Tensor standard_gamma(const at::Tensor& self, Given given) {
  const PhiloxPosition position = draw_position(given, self.device());
  CardScope scope(self.device(), "aten::_standard_gamma");
  const at::Tensor shapes = scope.view(self).contiguous();
  const at::Tensor result = at::empty(shapes.sizes(), shapes.options());
  AT_DISPATCH_FLOATING_TYPES_AND2(at::kHalf, at::kBFloat16, shapes.scalar_type(), "gamma_musa", [&] {
    const scalar_t* shape = shapes.const_data_ptr<scalar_t>();
    scalar_t* value = result.mutable_data_ptr<scalar_t>();
    for_elements(shapes.numel(), position, [&](int64_t index, ElementStream& stream) {
      const double drawn = std::exp(sample_log_gamma(static_cast<double>(shape[index]), stream));
      // Never 0: callers take the logarithm.
      const scalar_t least = std::numeric_limits<scalar_t>::min();
      const scalar_t rounded = static_cast<scalar_t>(drawn);
      value[index] = rounded < least ? least : rounded;
    });
  });
  return scope.result(result);
}

at::Tensor sample_dirichlet(const at::Tensor& self, Given given) {
  const PhiloxPosition position = draw_position(given, self.device());
  CardScope scope(self.device(), "aten::_sample_dirichlet");
  const at::Tensor shapes = scope.view(self).contiguous();
  const at::Tensor result = at::empty(shapes.sizes(), shapes.options());
  const int64_t width = shapes.dim() == 0 ? 1 : shapes.size(-1);
  const int64_t rows = width == 0 ? 0 : shapes.numel() / width;
  AT_DISPATCH_FLOATING_TYPES_AND2(at::kHalf, at::kBFloat16, shapes.scalar_type(), "dirichlet_musa", [&] {
    const scalar_t* shape = shapes.const_data_ptr<scalar_t>();
    scalar_t* value = result.mutable_data_ptr<scalar_t>();
    for_ranges(rows, std::max<int64_t>(1, kGrain / std::max<int64_t>(1, width)), [&](int64_t begin, int64_t end) {
      std::vector<double> logs(static_cast<size_t>(width));
      for (int64_t row = begin; row < end; ++row) {
        // Gamma numbers over their sum, in logarithms: with small shapes all of them may be below any double.
        double most = -std::numeric_limits<double>::infinity();
        for (int64_t column = 0; column < width; ++column) {
          ElementStream stream(position, row * width + column);
          const double drawn = sample_log_gamma(static_cast<double>(shape[row * width + column]), stream);
          logs[static_cast<size_t>(column)] = drawn;
          most = std::max(most, drawn);
        }
        double sum = 0;
        for (double& entry : logs) {
          entry = std::exp(entry - most);
          sum += entry;
        }
        for (int64_t column = 0; column < width; ++column) {
          const scalar_t least = std::numeric_limits<scalar_t>::min();
          const scalar_t rounded = static_cast<scalar_t>(logs[static_cast<size_t>(column)] / sum);
          value[row * width + column] = rounded < least ? least : rounded;
        }
      }
    });
  });
  return scope.result(result);
}

}  // namespace

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("poisson", poisson);
  m.impl("binomial", binomial);
  m.impl("_standard_gamma", standard_gamma);
  m.impl("_sample_dirichlet", sample_dirichlet);
}

}  // namespace musa::random
