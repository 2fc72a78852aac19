#include "mudnn/delta_rule.h"

#include "mudnn/isa.h"

namespace mudnn {

MUDNN_TABLES_OF(DeltaRuleKernels, delta_rule)

void delta_rule(const DeltaRuleProblem& problem, const Parallel& parallel) {
  const DeltaRuleKernels& kernels = delta_rule_kernels();
  const int64_t blocks = (problem.values + kernels.block_values - 1) / kernels.block_values;
  parallel.for_each(problem.sequences * problem.heads * blocks, 1, [&](int64_t begin, int64_t end) {
    kernels.run(problem, blocks, begin, end);
  });
}

}  // namespace mudnn
