// bernoulli_ with a probability or a tensor of them, and bernoulli's out form.
#include <ATen/Dispatch.h>
#include <ATen/native/DistributionTemplates.h>
#include <torch/library.h>

#include <atomic>

#include "backend/ops/devices.h"
#include "backend/ops/random/fill.h"

namespace musa::random {
namespace {

template <typename RNG>
struct BernoulliScalarKernel {
  void operator()(const at::Tensor& self, double p, const std::optional<at::Generator>& given) {
    const PhiloxPosition position = draw_position(given, self.device());
    CardScope scope(self.device(), "aten::bernoulli_");
    const at::Tensor host = scope.written(self);
    AT_DISPATCH_ALL_TYPES_AND3(at::kBool, at::kHalf, at::kBFloat16, host.scalar_type(), "bernoulli_scalar_musa_", [&] {
      write_in_order<scalar_t>(host, [&](scalar_t* values) {
        const WordBelow below(p);
        fill_values<1>(values, host.numel(), position, [&](const uint32_t* words, scalar_t* value, int64_t) {
          *value = static_cast<scalar_t>(below(words[0]));
        });
      });
    });
  }
};

template <typename Probability>
void check_probabilities(const Probability* p, int64_t count) {
  std::atomic<bool> valid{true};
  for_ranges(count, 16384, [&](int64_t begin, int64_t end) {
    if (!std::all_of(p + begin, p + end, [](Probability each) { return each >= 0 && each <= 1; })) {
      valid.store(false, std::memory_order_relaxed);
    }
  });
  TORCH_CHECK(
      valid.load(),
      "Expected p_in >= 0 && p_in <= 1 to be true, but got false: bernoulli takes probabilities in [0, 1]");
}

template <typename Value, typename Probability>
void draw_each(const at::Tensor& host, const at::Tensor& probabilities, PhiloxPosition position) {
  const Probability* p = probabilities.const_data_ptr<Probability>();
  check_probabilities(p, host.numel());
  write_in_order<Value>(host, [&](Value* values) {
    fill_values<Draw<Probability>::kWords>(
        values, host.numel(), position, [&](const uint32_t* words, Value* value, int64_t index) {
          *value = static_cast<Value>(Draw<Probability>::unit(words) < p[index]);
        });
  });
}

template <typename RNG>
struct BernoulliTensorKernel {
  void operator()(const at::Tensor& self, const at::Tensor& p, const std::optional<at::Generator>& given) {
    TORCH_CHECK(
        at::isFloatingType(p.scalar_type()), "expected probabilities tensor to have floating type, got ",
        p.scalar_type());
    const PhiloxPosition position = draw_position(given, self.device());
    CardScope scope(self.device(), "aten::bernoulli_");
    const at::Tensor host = scope.written(self);
    const at::ScalarType type = p.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
    const at::Tensor probabilities = scope.view(p).expand(host.sizes()).to(type).contiguous();
    AT_DISPATCH_ALL_TYPES_AND3(at::kBool, at::kHalf, at::kBFloat16, host.scalar_type(), "bernoulli_tensor_musa_", [&] {
      if (type == at::kDouble) {
        draw_each<scalar_t, double>(host, probabilities, position);
      } else {
        draw_each<scalar_t, float>(host, probabilities, position);
      }
    });
  }
};

namespace templates = at::native::templates;

at::Tensor& bernoulli_float(at::Tensor& self, double p, std::optional<at::Generator> given) {
  return templates::bernoulli_impl_<BernoulliScalarKernel, MusaGenerator>(self, p, std::move(given));
}

at::Tensor& bernoulli_tensor(at::Tensor& self, const at::Tensor& p, std::optional<at::Generator> given) {
  return templates::bernoulli_impl_<BernoulliTensorKernel, MusaGenerator>(self, p, std::move(given));
}

at::Tensor& bernoulli_out(const at::Tensor& self, std::optional<at::Generator> given, at::Tensor& out) {
  common_device("aten::bernoulli", {{"out", out}, {"self", self}});
  return templates::bernoulli_out_impl<BernoulliTensorKernel, MusaGenerator>(out, self, std::move(given));
}

}  // namespace

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("bernoulli_.float", bernoulli_float);
  m.impl("bernoulli_.Tensor", bernoulli_tensor);
  m.impl("bernoulli.out", bernoulli_out);
}

}  // namespace musa::random
