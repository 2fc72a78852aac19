// Softmax of contiguous rows, its logarithm, and the gradients of both.
#pragma once

#include "mudnn/parallel.h"
#include "mudnn/types.h"

namespace mudnn {

enum class SoftmaxKind : uint8_t { kSoftmax, kLogSoftmax };

/// Rows of `columns` elements, all contiguous.
struct SoftmaxProblem {
  SoftmaxKind kind;
  Dtype dtype;
  int64_t rows;
  int64_t columns;
  const void* x;
  void* out;
};
/// e^(x - max) / sum, or x - max - log(sum), of each row.
void softmax(const SoftmaxProblem& problem, const Parallel& parallel);

struct SoftmaxBackwardProblem {
  SoftmaxKind kind;
  Dtype dtype;
  int64_t rows;
  int64_t columns;
  const void* grad;
  const void* out;  // of the forward
  void* grad_x;
};
/// out (grad - sum(grad out)), or grad - e^out sum(grad).
void softmax_backward(const SoftmaxBackwardProblem& problem, const Parallel& parallel);

struct SoftmaxKernels {
  void (*softmax)(const SoftmaxProblem& problem, int64_t begin, int64_t end);
  void (*softmax_backward)(const SoftmaxBackwardProblem& problem, int64_t begin, int64_t end);
};

}  // namespace mudnn
