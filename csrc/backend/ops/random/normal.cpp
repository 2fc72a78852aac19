// normal_, log_normal_ and normal of parameter tensors.
#include <ATen/Dispatch.h>
#include <ATen/native/DistributionTemplates.h>
#include <torch/library.h>

#include <numbers>

#include "backend/ops/devices.h"
#include "backend/ops/random/fill.h"

namespace musa::random {
namespace {

/// Two independent standard normal numbers (Box and Muller, 1958) from two words (float) or four (double).
template <typename T>
std::pair<T, T> normal_pair(const uint32_t* words) {
  T log_argument, turns;
  if constexpr (std::is_same_v<T, double>) {
    log_argument = Draw<double>::open_unit(words);
    turns = Draw<double>::unit(words + 2);
  } else {
    // 32 bits reach 6.7 standard deviations. The float nearest to 1 - 2^-33 is 1: radius 0, which is what it should be.
    log_argument = (static_cast<float>(words[0]) + 0.5f) * 0x1p-32f;
    turns = static_cast<float>(words[1] >> 8) * 0x1p-24f;
  }
  const T radius = std::sqrt(T(-2) * std::log(log_argument));
  const T angle = T(2) * std::numbers::pi_v<T> * turns;
  return {radius * std::cos(angle), radius * std::sin(angle)};
}

template <typename Transform>
void fill_from_normal(
    const at::Tensor& self, const char* op, const std::optional<at::Generator>& given, const Transform& transform) {
  const PhiloxPosition position = draw_position(given, self.device());
  CardScope scope(self.device(), op);
  const at::Tensor host = scope.view(self);
  AT_DISPATCH_FLOATING_TYPES_AND2(at::kHalf, at::kBFloat16, host.scalar_type(), "normal_musa", [&] {
    using Compute = typename Draw<scalar_t>::Compute;
    write_in_order<scalar_t>(host, [&](scalar_t* values) {
      fill_values<2 * Draw<scalar_t>::kWords, 2>(
          values, host.numel(), position, [&](const uint32_t* words, scalar_t* pair, int64_t) {
            const auto [first, second] = normal_pair<Compute>(words);
            pair[0] = static_cast<scalar_t>(transform(first));
            pair[1] = static_cast<scalar_t>(transform(second));
          });
    });
  });
}

template <typename RNG>
struct NormalKernel {
  void operator()(const at::Tensor& self, double mean, double std, const std::optional<at::Generator>& given) {
    fill_from_normal(self, "aten::normal_", given, [=](auto z) {
      using T = decltype(z);
      return z * static_cast<T>(std) + static_cast<T>(mean);
    });
  }
};

template <typename RNG>
struct LogNormalKernel {
  void operator()(at::TensorIteratorBase& iter, double mean, double std, const std::optional<at::Generator>& given) {
    fill_from_normal(iter.tensor(0), "aten::log_normal_", given, [=](auto z) {
      using T = decltype(z);
      return std::exp(z * static_cast<T>(std) + static_cast<T>(mean));
    });
  }
};

namespace templates = at::native::templates;
using Given = std::optional<at::Generator>;

at::Tensor& normal_(at::Tensor& self, double mean, double std, Given given) {
  return templates::normal_impl_<NormalKernel, MusaGenerator>(self, mean, std, std::move(given));
}

at::Tensor& log_normal_(at::Tensor& self, double mean, double std, Given given) {
  return templates::log_normal_impl_<LogNormalKernel, MusaGenerator>(self, mean, std, std::move(given));
}

at::Tensor normal_tensor_float(const at::Tensor& mean, double std, Given given) {
  return templates::normal_impl<NormalKernel, MusaGenerator>(mean, std, std::move(given));
}

at::Tensor normal_float_tensor(double mean, const at::Tensor& std, Given given) {
  return templates::normal_impl<NormalKernel, MusaGenerator>(mean, std, std::move(given));
}

at::Tensor normal_tensor_tensor(const at::Tensor& mean, const at::Tensor& std, Given given) {
  common_device("aten::normal", {{"mean", mean}, {"std", std}});
  return templates::normal_impl<NormalKernel, MusaGenerator>(mean, std, std::move(given));
}

at::Tensor& normal_tensor_float_out(const at::Tensor& mean, double std, Given given, at::Tensor& out) {
  common_device("aten::normal", {{"out", out}, {"mean", mean}});
  return templates::normal_out_impl<NormalKernel, MusaGenerator>(out, mean, std, std::move(given));
}

at::Tensor& normal_float_tensor_out(double mean, const at::Tensor& std, Given given, at::Tensor& out) {
  common_device("aten::normal", {{"out", out}, {"std", std}});
  return templates::normal_out_impl<NormalKernel, MusaGenerator>(out, mean, std, std::move(given));
}

at::Tensor& normal_tensor_tensor_out(const at::Tensor& mean, const at::Tensor& std, Given given, at::Tensor& out) {
  common_device("aten::normal", {{"out", out}, {"mean", mean}, {"std", std}});
  return templates::normal_out_impl<NormalKernel, MusaGenerator>(out, mean, std, std::move(given));
}

}  // namespace

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("normal_", normal_);
  m.impl("log_normal_", log_normal_);
  m.impl("normal.Tensor_float", normal_tensor_float);
  m.impl("normal.float_Tensor", normal_float_tensor);
  m.impl("normal.Tensor_Tensor", normal_tensor_tensor);
  m.impl("normal.Tensor_float_out", normal_tensor_float_out);
  m.impl("normal.float_Tensor_out", normal_float_tensor_out);
  m.impl("normal.Tensor_Tensor_out", normal_tensor_tensor_out);
}

}  // namespace musa::random
