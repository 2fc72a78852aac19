#include "mudnn/rotary.h"

#include <algorithm>

#include "mudnn/isa.h"

namespace mudnn {

MUDNN_TABLES_OF(RotaryKernels, rotary)

namespace {

constexpr int64_t kElementsPerTask = 16384;

}  // namespace

void rotate(const RotaryProblem& problem, const Parallel& parallel) {
  const RotaryKernels& kernels = rotary_kernels();
  const int64_t of_token = problem.head_dim * (problem.sides[0].heads + problem.sides[1].heads);
  const int64_t grain = std::max<int64_t>(1, kElementsPerTask / std::max<int64_t>(1, of_token));
  parallel.for_each(problem.batches * problem.tokens, grain, [&](int64_t begin, int64_t end) {
    kernels.rotate(problem, begin, end);
  });
}

}  // namespace mudnn
