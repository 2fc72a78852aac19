// Activations of gated layers.
#pragma once

#include <stdint.h>

namespace mudnn {

enum class Activation : uint8_t { kSilu, kGelu, kGeluTanh, kSitu };

/// What stands between the two products of a gated layer: activation(gate) * up. situ(g, u) is
/// beta tanh(g / beta) sigmoid(g) * linear_beta tanh(u / linear_beta).
struct Gating {
  Activation activation = Activation::kSilu;
  float situ_beta = 4;
  float situ_linear_beta = 25;
};

}  // namespace mudnn
