// Dropout that keeps its mask: native_dropout (what nn.functional.dropout runs), _fused_dropout and _masked_scale.
#include <ATen/Dispatch.h>
#include <ATen/OpMathType.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/zeros_like.h>
#include <torch/library.h>

#include "backend/ops/devices.h"
#include "backend/ops/random/fill.h"

namespace musa::random {
namespace {

/// `ordered`, which is contiguous, with the strides that an element-wise result of `like` has.
at::Tensor with_strides_of(const at::Tensor& ordered, const at::Tensor& like) {
  if (like.is_contiguous()) {
    return ordered;
  }
  return at::empty_like(like, ordered.options()).copy_(ordered);
}

/// (input * mask / keep, mask), each element kept with probability `keep` in (0, 1].
template <typename Mask>
std::tuple<at::Tensor, at::Tensor> drop(
    const at::Tensor& input, double keep, const std::optional<at::Generator>& given, const char* op) {
  const PhiloxPosition position = draw_position(given, input.device());
  CardScope scope(input.device(), op);
  const at::Tensor host = scope.view(input);
  const at::Tensor source = host.contiguous();
  const at::Tensor output = at::empty_like(source);
  const at::Tensor mask = at::empty_like(source, source.options().dtype(c10::CppTypeToScalarType<Mask>::value));
  AT_DISPATCH_FLOATING_AND_COMPLEX_TYPES_AND2(at::kHalf, at::kBFloat16, source.scalar_type(), "fused_dropout", [&] {
    using Compute = at::opmath_type<scalar_t>;
    const WordBelow keeps(keep);
    const Compute scale = static_cast<Compute>(1 / keep);
    const scalar_t* x = source.const_data_ptr<scalar_t>();
    scalar_t* y = output.mutable_data_ptr<scalar_t>();
    fill_values<1>(
        mask.mutable_data_ptr<Mask>(), source.numel(), position, [&](const uint32_t* words, Mask* flag, int64_t index) {
          const bool kept = keeps(words[0]);
          *flag = static_cast<Mask>(kept);
          // A product, not a choice: a dropped NaN stays one, as on other devices.
          y[index] = static_cast<scalar_t>(static_cast<Compute>(x[index]) * (kept ? scale : Compute(0)));
        });
  });
  return {scope.result(with_strides_of(output, host)), scope.result(with_strides_of(mask, host))};
}

std::tuple<at::Tensor, at::Tensor> native_dropout(const at::Tensor& input, double p, std::optional<bool> train) {
  TORCH_CHECK(p >= 0 && p <= 1, "dropout probability has to be between 0 and 1, but got ", p);
  const at::TensorOptions mask = input.options().dtype(at::kBool);
  if (!train.value_or(true)) {
    return {input.clone(), at::ones_like(input, mask)};
  }
  if (p == 1) {
    return {at::zeros_like(input), at::zeros_like(input, mask)};
  }
  return drop<bool>(input, 1 - p, std::nullopt, "aten::native_dropout");
}

/// `keep` is the probability of keeping an element, unlike native_dropout's p; the mask is uint8.
std::tuple<at::Tensor, at::Tensor> fused_dropout(
    const at::Tensor& self, double keep, std::optional<at::Generator> given) {
  TORCH_CHECK(
      keep > 0 && keep <= 1,
      "_fused_dropout: the probability of keeping an element has to be in (0, 1], "
      "but got ",
      keep);
  return drop<uint8_t>(self, keep, given, "aten::_fused_dropout");
}

/// self * mask * scale: the backward of _fused_dropout.
at::Tensor masked_scale(const at::Tensor& self, const at::Tensor& mask, double scale) {
  common_device("aten::_masked_scale", {{"self", self}, {"mask", mask}});
  TORCH_CHECK(mask.scalar_type() == at::kByte, "mask should be torch.uint8 dtype");
  CardScope scope(self.device(), "aten::_masked_scale");
  return scope.result(scope.view(self).mul(scope.view(mask)).mul_(scale));
}

}  // namespace

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("native_dropout", native_dropout);
  m.impl("_fused_dropout", fused_dropout);
  m.impl("_masked_scale", masked_scale);
}

}  // namespace musa::random
