// Gated activations: activation(gate) * up, element by element.
#pragma once

#include "mudnn/parallel.h"
#include "mudnn/types.h"

namespace mudnn {

/// Rows of `columns` elements, each row contiguous; strides between rows in elements.
struct GluProblem {
  Dtype dtype;
  int64_t rows;
  int64_t columns;
  const void* gate;
  int64_t gate_stride;
  const void* up;
  int64_t up_stride;
  void* out;
  int64_t out_stride;
};

/// out = silu(gate) * up with silu(x) = x / (1 + e^-x), computed in float32 and rounded once.
void silu_and_mul(const GluProblem& problem, const Parallel& parallel);

/// Of one instruction set: work on rows begin .. end.
struct GluKernels {
  void (*silu_and_mul)(const GluProblem& problem, int64_t begin, int64_t end);
};

}  // namespace mudnn
