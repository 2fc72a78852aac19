#include "mudnn/glu.h"

#include <algorithm>

#include "mudnn/isa.h"

namespace mudnn {

MUDNN_TABLES_OF(GluKernels, glu)

namespace {

constexpr int64_t kElementsPerTask = 16384;

}  // namespace

void silu_and_mul(const GluProblem& problem, const Parallel& parallel) {
  const GluKernels& kernels = glu_kernels();
  const int64_t grain = std::max<int64_t>(1, kElementsPerTask / std::max<int64_t>(1, problem.columns));
  parallel.for_each(
      problem.rows, grain, [&](int64_t begin, int64_t end) { kernels.silu_and_mul(problem, begin, end); });
}

}  // namespace mudnn
