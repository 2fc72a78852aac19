// Activations, alone or gated: activation(gate) * up, element by element.
#pragma once

#include "mudnn/parallel.h"
#include "mudnn/rows.h"
#include "mudnn/types.h"

namespace mudnn {

/// silu(x) = x / (1 + e^-x); gelu by the error function or with tanh, x / 2 (1 + tanh(sqrt(2 / pi) (x + 0.044715
/// x^3))); situ(gate, up) = beta tanh(gate / beta) sigmoid(gate) * linear_beta tanh(up / linear_beta).
enum class Activation : uint8_t { kSilu, kGeluErf, kGeluTanh, kSitu };

/// Rows of `columns` elements. `out` may lie where `gate` or `up` lies.
struct GluProblem {
  Activation activation;
  Dtype dtype;
  int64_t rows;
  int64_t columns;
  ConstRows gate;
  ConstRows up;  // optional but for situ: without it out = activation(gate)
  Rows out;
  float beta;         // of situ
  float linear_beta;  // of situ
};

/// Computed in float32 and rounded once.
void activate(const GluProblem& problem, const Parallel& parallel);

/// Of one instruction set: work on rows begin .. end.
struct GluKernels {
  void (*activate)(const GluProblem& problem, int64_t begin, int64_t end);
};

}  // namespace mudnn
