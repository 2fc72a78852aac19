#include "mudnn/attention_backward.h"

#include "mudnn/isa.h"

namespace mudnn {

MUDNN_TABLES_OF(AttentionBackwardKernels, attention_backward)

void attention_backward(
    const AttentionProblem& problem, const AttentionGradients& gradients, const Parallel& parallel) {
  const AttentionBackwardKernels& kernels = attention_backward_kernels();
  const int64_t pairs = problem.batches * problem.kv_heads;
  const int64_t work = pairs * problem.queries * problem.keys * problem.head_dim;
  constexpr int64_t kWorthTwoThreads = int64_t{1} << 18;
  parallel.for_each(pairs, work >= kWorthTwoThreads ? 1 : pairs, [&](int64_t begin, int64_t end) {
    kernels.run(problem, gradients, begin, end);
  });
}

}  // namespace mudnn
