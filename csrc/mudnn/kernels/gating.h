// What stands between the two products of a gated layer, on Vec.
#pragma once

#include "mudnn/kernels/activations.h"
#include "mudnn/moe.h"

namespace mudnn {
namespace {

template <Activation kActivation, bool kCoarse>
MUDNN_INLINE Vec gated(const Gating& gating, Vec gate, Vec up) {
  if constexpr (kActivation == Activation::kSilu) {
    return silu<kCoarse>(gate) * up;
  } else if constexpr (kActivation == Activation::kGeluErf) {
    return gelu_erf<kCoarse>(gate) * up;
  } else if constexpr (kActivation == Activation::kGeluTanh) {
    return gelu_tanh<kCoarse>(gate) * up;
  } else {
    const Vec squashed = splat(gating.situ_beta) * tanh_of<kCoarse>(gate * splat(1 / gating.situ_beta));
    const Vec linear = splat(gating.situ_linear_beta) * tanh_of<kCoarse>(up * splat(1 / gating.situ_linear_beta));
    return times_sigmoid<kCoarse>(squashed, gate) * linear;
  }
}

/// body.template operator()<Activation>() with the activation as a constant.
template <class F>
MUDNN_INLINE void for_activation(Activation activation, F&& body) {
  switch (activation) {
    case Activation::kSilu:
      body.template operator()<Activation::kSilu>();
      break;
    case Activation::kGeluErf:
      body.template operator()<Activation::kGeluErf>();
      break;
    case Activation::kGeluTanh:
      body.template operator()<Activation::kGeluTanh>();
      break;
    case Activation::kSitu:
      body.template operator()<Activation::kSitu>();
      break;
  }
}

}  // namespace
}  // namespace mudnn
