// torch.autocast("musa"): the casting policy of every operator, the same lists that CUDA uses.
//
// Torch registers nothing at all for AutocastPrivateUse1. Without the fallthrough each op under autocast would be
// refused, without the lists autocast would be accepted and change nothing.
#include <ATen/autocast_mode.h>
#include <torch/library.h>

namespace musa {
namespace {

// The signature list of ATen/autocast_mode.h spells its types without a namespace.
using at::IntArrayRef;
using at::Scalar;
using at::ScalarType;
using at::Tensor;

at::Tensor refuse_binary_cross_entropy(
    const at::Tensor&, const at::Tensor&, const std::optional<at::Tensor>&, int64_t) {
  // The log of a sigmoid rounded to 16 bits is -inf too easily; CUDA refuses this op under autocast as well.
  TORCH_CHECK(
      false,
      "torch.nn.functional.binary_cross_entropy and torch.nn.BCELoss are unsafe to autocast on musa: their "
      "logarithm needs the precision that the sigmoid before them has already lost. Drop the sigmoid and use "
      "torch.nn.functional.binary_cross_entropy_with_logits or torch.nn.BCEWithLogitsLoss, which are safe, or "
      "run this loss inside torch.autocast(\"musa\", enabled=False) on float32 inputs.");
}

TORCH_LIBRARY_IMPL(_, AutocastPrivateUse1, m) { m.fallback(torch::CppFunction::makeFallthrough()); }

// One macro per policy: the lists of ATen/autocast_mode.h call it with (op) or (op, overload).
#define MUSA_LOWER_PRECISION(...) KERNEL_PRIVATEUSEONE(__VA_ARGS__, lower_precision_fp)
#define MUSA_FP32(...) KERNEL_PRIVATEUSEONE(__VA_ARGS__, fp32)
#define MUSA_FP32_SET_DTYPE(...) KERNEL_PRIVATEUSEONE(__VA_ARGS__, fp32_set_opt_dtype)
#define MUSA_PROMOTE(...) KERNEL_PRIVATEUSEONE(__VA_ARGS__, promote)

TORCH_LIBRARY_IMPL(aten, AutocastPrivateUse1, m) {
  AT_FORALL_LOWER_PRECISION_FP(MUSA_LOWER_PRECISION)
  AT_FORALL_FP32(MUSA_FP32)
  AT_FORALL_FP32_SET_OPT_DTYPE(MUSA_FP32_SET_DTYPE)
  AT_FORALL_DIFFERENT_REDISPATCH_SIGNATURE(KERNEL_DIFFERENT_REDISPATCH_SIGNATURE_PRIVATEUSEONE)
  AT_FORALL_PROMOTE(MUSA_PROMOTE)
  m.impl("binary_cross_entropy", &refuse_binary_cross_entropy);
}

}  // namespace
}  // namespace musa
