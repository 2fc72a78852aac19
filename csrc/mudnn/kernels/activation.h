// Gated activations on Vec.
#pragma once

#include "mudnn/activation.h"
#include "mudnn/kernels/vec.h"

namespace mudnn {
namespace {

/// tanh(x) = (e^2x - 1) / (e^2x + 1), with e^y - 1 = 2^n (e^r - 1) + (2^n - 1): no cancellation near 0.
MUDNN_INLINE Vec gate_tanh(Vec x) {
  const Vec y = min(splat(40.0f), max(splat(-40.0f), x + x));
  const Vec n = round(y * splat(1.44269504f));
  Vec r = fma(n, splat(-0.693359375f), y);
  r = fma(n, splat(2.12194440e-4f), r);
  Vec p = splat(1.0f / 5040);
  p = fma(p, r, splat(1.0f / 720));
  p = fma(p, r, splat(1.0f / 120));
  p = fma(p, r, splat(1.0f / 24));
  p = fma(p, r, splat(1.0f / 6));
  p = fma(p, r, splat(0.5f));
  p = fma(p, r, splat(1.0f)) * r;
  const Vec scale = scale_by_power(splat(1.0f), n);
  const Vec less_one = fma(scale, p, scale - splat(1.0f));
  return less_one / (less_one + splat(2.0f));
}

MUDNN_INLINE Vec gate_erf(Vec x) {
  float lanes[Vec::kLanes];
  store(lanes, x);
  for (float& lane : lanes) {
    lane = __builtin_erff(lane);
  }
  return load(lanes);
}

template <Activation kActivation>
MUDNN_INLINE Vec gated(const Gating& gating, Vec gate, Vec up) {
  if constexpr (kActivation == Activation::kSilu) {
    return gate * sigmoid(gate) * up;
  } else if constexpr (kActivation == Activation::kGelu) {
    return gate * splat(0.5f) * (splat(1.0f) + gate_erf(gate * splat(0.70710678f))) * up;
  } else if constexpr (kActivation == Activation::kGeluTanh) {
    // (1 + tanh(z)) / 2 = sigmoid(2 z), which doesn't cancel.
    const Vec twice = splat(2 * 0.79788456f) * fma(splat(0.044715f) * gate * gate, gate, gate);
    return gate * sigmoid(twice) * up;
  } else {
    const Vec beta = splat(gating.situ_beta);
    const Vec linear = splat(gating.situ_linear_beta);
    return beta * gate_tanh(gate / beta) * sigmoid(gate) * (linear * gate_tanh(up / linear));
  }
}

/// body(index) with the activation as a constant: body.template operator()<Activation::kSilu>().
template <class F>
MUDNN_INLINE void for_activation(Activation activation, F&& body) {
  switch (activation) {
    case Activation::kSilu:
      body.template operator()<Activation::kSilu>();
      break;
    case Activation::kGelu:
      body.template operator()<Activation::kGelu>();
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
