#include "mudnn/norm.h"

#include <algorithm>

#include "mudnn/isa.h"

namespace mudnn {

MUDNN_TABLES_OF(NormKernels, norm)

namespace {

constexpr int64_t kElementsPerTask = 16384;
constexpr int64_t kMostPartials = 32;

int64_t row_grain(int64_t columns) { return std::max<int64_t>(1, kElementsPerTask / std::max<int64_t>(1, columns)); }

}  // namespace

void layer_norm(const NormProblem& problem, const Parallel& parallel) {
  const NormKernels& kernels = norm_kernels();
  parallel.for_each(problem.rows, row_grain(problem.columns), [&](int64_t begin, int64_t end) {
    kernels.layer_norm(problem, begin, end);
  });
}

void rms_norm(const NormProblem& problem, const Parallel& parallel) {
  const NormKernels& kernels = norm_kernels();
  parallel.for_each(problem.rows, row_grain(problem.columns), [&](int64_t begin, int64_t end) {
    kernels.rms_norm(problem, begin, end);
  });
}

int64_t rms_norm_partials(int64_t rows) { return std::clamp<int64_t>(rows / 8, 1, kMostPartials); }

void rms_norm_backward(const RmsNormBackwardProblem& problem, const Parallel& parallel) {
  const NormKernels& kernels = norm_kernels();
  const int64_t partials = rms_norm_partials(problem.rows);
  parallel.for_each(partials, 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      kernels.rms_norm_backward(
          problem, problem.rows * i / partials, problem.rows * (i + 1) / partials,
          problem.partial == nullptr ? nullptr : problem.partial + i * problem.columns);
    }
  });
  if (problem.grad_weight != nullptr) {
    parallel.for_each(
        problem.columns, 1024, [&](int64_t begin, int64_t end) { kernels.rms_norm_weight(problem, begin, end); });
  }
}

}  // namespace mudnn
