#include "mudnn/kv_pages.h"

#include "mudnn/isa.h"

namespace mudnn {

MUDNN_TABLES_OF(KvPagesKernels, kv_pages)

void append_to_pages(const KvAppendProblem& problem, const Parallel& parallel) {
  const KvPagesKernels& kernels = kv_pages_kernels();
  const int64_t parts = (problem.tokens + kKvPart - 1) / kKvPart;
  parallel.for_each(
      parts * problem.key.kv_heads, 4, [&](int64_t begin, int64_t end) { kernels.append(problem, begin, end); });
}

void gather_from_pages(const KvGatherProblem& problem, const Parallel& parallel) {
  const KvPagesKernels& kernels = kv_pages_kernels();
  const int64_t parts = (problem.most + kKvPart - 1) / kKvPart;
  parallel.for_each(problem.sequences * parts * problem.key.kv_heads, 4, [&](int64_t begin, int64_t end) {
    kernels.gather(problem, parts, begin, end);
  });
}

}  // namespace mudnn
