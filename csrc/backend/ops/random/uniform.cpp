// uniform_, and what is one formula of a uniform number: exponential_, cauchy_, geometric_.
#include <ATen/Dispatch.h>
#include <ATen/native/DistributionTemplates.h>
#include <torch/library.h>

#include "backend/ops/random/fill.h"

namespace musa::random {
namespace {

/// The nearest value below `value` (finite, not the lowest) of any floating type.
template <typename T>
T next_below(T value) {
  if constexpr (sizeof(T) == 2) {
    if (value.x << 1 == 0x10000 || (value.x & 0x7fff) == 0) {  // zero: the smallest negative number comes next
      return T(0x8001, T::from_bits());
    }
    return T(static_cast<uint16_t>(value.x & 0x8000 ? value.x + 1 : value.x - 1), T::from_bits());
  } else {
    return std::nextafter(value, std::numeric_limits<T>::lowest());
  }
}

template <typename RNG>
struct UniformKernel {
  void operator()(at::TensorIteratorBase& iter, double from, double to, const std::optional<at::Generator>& given) {
    const at::Tensor& self = iter.tensor(0);
    const PhiloxPosition position = draw_position(given, self.device());
    CardScope scope(self.device(), "aten::uniform_");
    const at::Tensor host = scope.written(self);
    AT_DISPATCH_FLOATING_TYPES_AND2(at::kHalf, at::kBFloat16, host.scalar_type(), "uniform_kernel_musa", [&] {
      using Compute = typename Draw<scalar_t>::Compute;
      const Compute base = static_cast<Compute>(from);
      const Compute range = static_cast<Compute>(to - from);
      const scalar_t end = static_cast<scalar_t>(to);
      // Rounding may reach the open end; its lower neighbour stands for that sliver.
      const scalar_t last = to > from ? next_below(end) : end;
      write_in_order<scalar_t>(host, [&](scalar_t* values) {
        fill_values<Draw<scalar_t>::kWords>(
            values, host.numel(), position, [&](const uint32_t* words, scalar_t* value, int64_t) {
              const auto drawn = static_cast<scalar_t>(Draw<scalar_t>::unit(words) * range + base);
              *value = drawn < end ? drawn : last;
            });
      });
    });
  }
};

at::Tensor& uniform_(at::Tensor& self, double from, double to, std::optional<at::Generator> given) {
  return at::native::templates::uniform_impl_<UniformKernel, MusaGenerator>(self, from, to, std::move(given));
}

/// Fills `self` with transform(u), u uniform in (0, 1) and computed in double; the transform rounds.
template <typename T, typename Transform>
void fill_from_open_unit(const at::Tensor& host, PhiloxPosition position, const Transform& transform) {
  write_in_order<T>(host, [&](T* values) {
    fill_values<Draw<T>::kWords>(values, host.numel(), position, [&](const uint32_t* words, T* value, int64_t) {
      *value = transform(Draw<T>::open_unit(words));
    });
  });
}

template <typename RNG>
struct ExponentialKernel {
  void operator()(at::TensorIteratorBase& iter, double lambda, const std::optional<at::Generator>& given) {
    const at::Tensor& self = iter.tensor(0);
    TORCH_CHECK(
        at::isFloatingType(self.scalar_type()),
        "Exponential distribution is a continuous probability distribution. dtype must be a floating point "
        "but you specified ",
        self.scalar_type());
    const PhiloxPosition position = draw_position(given, self.device());
    CardScope scope(self.device(), "aten::exponential_");
    const at::Tensor host = scope.written(self);
    AT_DISPATCH_FLOATING_TYPES_AND2(at::kHalf, at::kBFloat16, host.scalar_type(), "exponential_musa", [&] {
      // The distribution excludes 0 (callers divide by it), also where the dtype would round to it.
      const scalar_t least = std::isinf(lambda) ? scalar_t(0) : std::numeric_limits<scalar_t>::denorm_min();
      fill_from_open_unit<scalar_t>(host, position, [&](double u) {
        const auto drawn = static_cast<scalar_t>(-std::log(u) / lambda);
        return drawn > least ? drawn : least;
      });
    });
  }
};

at::Tensor& exponential_(at::Tensor& self, double lambda, std::optional<at::Generator> given) {
  return at::native::templates::exponential_impl_<ExponentialKernel, MusaGenerator>(self, lambda, std::move(given));
}

template <typename RNG>
struct CauchyKernel {
  void operator()(
      at::TensorIteratorBase& iter, double median, double sigma, const std::optional<at::Generator>& given) {
    const at::Tensor& self = iter.tensor(0);
    const PhiloxPosition position = draw_position(given, self.device());
    CardScope scope(self.device(), "aten::cauchy_");
    const at::Tensor host = scope.written(self);
    AT_DISPATCH_FLOATING_TYPES_AND2(at::kHalf, at::kBFloat16, host.scalar_type(), "cauchy_musa", [&] {
      fill_from_open_unit<scalar_t>(
          host, position, [&](double u) { return static_cast<scalar_t>(median + sigma * std::tan(M_PI * (u - 0.5))); });
    });
  }
};

at::Tensor& cauchy_(at::Tensor& self, double median, double sigma, std::optional<at::Generator> given) {
  return at::native::templates::cauchy_impl_<CauchyKernel, MusaGenerator>(self, median, sigma, std::move(given));
}

template <typename RNG>
struct GeometricKernel {
  void operator()(at::TensorIteratorBase& iter, double p, const std::optional<at::Generator>& given) {
    const at::Tensor& self = iter.tensor(0);
    const PhiloxPosition position = draw_position(given, self.device());
    CardScope scope(self.device(), "aten::geometric_");
    const at::Tensor host = scope.written(self);
    AT_DISPATCH_ALL_TYPES_AND2(at::kHalf, at::kBFloat16, host.scalar_type(), "geometric_musa", [&] {
      const double scale = 1 / std::log1p(-p);
      const double most = static_cast<double>(std::numeric_limits<scalar_t>::max());
      fill_from_open_unit<scalar_t>(host, position, [&](double u) {
        const double trials = std::max(1.0, std::ceil(std::log(u) * scale));
        if constexpr (std::is_integral_v<scalar_t>) {
          return trials < most ? static_cast<scalar_t>(trials) : std::numeric_limits<scalar_t>::max();
        } else {
          return static_cast<scalar_t>(trials);
        }
      });
      (void)most;
    });
  }
};

at::Tensor& geometric_(at::Tensor& self, double p, std::optional<at::Generator> given) {
  return at::native::templates::geometric_impl_<GeometricKernel, MusaGenerator>(self, p, std::move(given));
}

}  // namespace

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("uniform_", uniform_);
  m.impl("exponential_", exponential_);
  m.impl("cauchy_", cauchy_);
  m.impl("geometric_", geometric_);
}

}  // namespace musa::random
