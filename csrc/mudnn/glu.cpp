#include "mudnn/glu.h"

#include <algorithm>

#include "mudnn/isa.h"

namespace mudnn {

MUDNN_TABLES_OF(GluKernels, glu)

namespace {

constexpr int64_t kElementsPerTask = 16384;

}  // namespace

void activate(const GluProblem& problem, const Parallel& parallel) {
  const GluKernels& kernels = glu_kernels();
  const int64_t grain = std::max<int64_t>(1, kElementsPerTask / std::max<int64_t>(1, problem.columns));
  parallel.for_each(problem.rows, grain, [&](int64_t begin, int64_t end) { kernels.activate(problem, begin, end); });
}

}  // namespace mudnn
