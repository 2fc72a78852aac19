// normal_, log_normal_ and normal of parameter tensors.
#include <ATen/Dispatch.h>
#include <ATen/native/DistributionTemplates.h>
#include <torch/library.h>

#include "backend/ops/devices.h"
#include "backend/ops/random/fill.h"
#include "backend/ops/random/standard_normal.h"

namespace musa::random {
namespace {

template <typename From, typename To, typename Transform>
void transform_each(const From* from, To* to, int64_t count, const Transform& transform) {
#pragma omp simd
  for (int64_t index = 0; index < count; ++index) {
    to[index] = static_cast<To>(transform(from[index]));
  }
}

template <typename Transform>
void fill_from_normal(
    const at::Tensor& self, const char* op, const std::optional<at::Generator>& given, const Transform& transform) {
  const PhiloxPosition position = draw_position(given, self.device());
  CardScope scope(self.device(), op);
  const at::Tensor host = scope.written(self);
  AT_DISPATCH_FLOATING_TYPES_AND2(at::kHalf, at::kBFloat16, host.scalar_type(), "normal_musa", [&] {
    using Compute = typename Draw<scalar_t>::Compute;
    constexpr int64_t kBlockValues = 4 / Draw<scalar_t>::kWords;
    const int64_t count = host.numel();
    write_in_order<scalar_t>(host, [&](scalar_t* values) {
      for_batches(
          (count + kBlockValues - 1) / kBlockValues, position,
          [&](int64_t block, int64_t blocks, const uint32_t* words) {
            std::array<Compute, kBatchBlocks * kBlockValues> normals;
            standard_normals(words, normals.data());
            scalar_t* out = values + block * kBlockValues;
            const int64_t here = std::min(blocks * kBlockValues, count - block * kBlockValues);
            transform_each(normals.data(), out, here, transform);
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
