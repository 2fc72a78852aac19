#include "mudnn/qkv.h"

#include <algorithm>

#include "mudnn/isa.h"

namespace mudnn {

MUDNN_TABLES_OF(QkvKernels, qkv)

namespace {

constexpr int64_t kElementsPerTask = 16384;

}  // namespace

void split_qkv(const QkvProblem& problem, const Parallel& parallel) {
  const QkvKernels& kernels = qkv_kernels();
  const int64_t of_token = problem.head_dim * (problem.heads + 2 * problem.kv_heads);
  const int64_t grain = std::max<int64_t>(1, kElementsPerTask / std::max<int64_t>(1, of_token));
  parallel.for_each(problem.tokens, grain, [&](int64_t begin, int64_t end) { kernels.split(problem, begin, end); });
}

}  // namespace mudnn
