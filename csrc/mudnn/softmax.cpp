#include "mudnn/softmax.h"

#include <algorithm>

#include "mudnn/isa.h"

namespace mudnn {

MUDNN_TABLES_OF(SoftmaxKernels, softmax)

namespace {

constexpr int64_t kElementsPerTask = 8192;

int64_t row_grain(int64_t columns) { return std::max<int64_t>(1, kElementsPerTask / std::max<int64_t>(1, columns)); }

}  // namespace

void softmax(const SoftmaxProblem& problem, const Parallel& parallel) {
  const SoftmaxKernels& kernels = softmax_kernels();
  parallel.for_each(problem.rows, row_grain(problem.columns), [&](int64_t begin, int64_t end) {
    kernels.softmax(problem, begin, end);
  });
}

void softmax_backward(const SoftmaxBackwardProblem& problem, const Parallel& parallel) {
  const SoftmaxKernels& kernels = softmax_kernels();
  parallel.for_each(problem.rows, row_grain(problem.columns), [&](int64_t begin, int64_t end) {
    kernels.softmax_backward(problem, begin, end);
  });
}

}  // namespace mudnn
