#include "mudnn/routing.h"

#include <algorithm>
#include <vector>

#include "mudnn/isa.h"

namespace mudnn {

MUDNN_TABLES_OF(RoutingKernels, routing)

namespace {

constexpr int64_t kElementsPerTask = 16384;

int64_t rows_per_task(int64_t columns) {
  return std::max<int64_t>(1, kElementsPerTask / std::max<int64_t>(1, columns));
}

}  // namespace

void top_k(const TopKProblem& problem, const Parallel& parallel) {
  const RoutingKernels& kernels = routing_kernels();
  parallel.for_each(problem.rows, rows_per_task(problem.columns), [&](int64_t begin, int64_t end) {
    kernels.top_k(problem, begin, end);
  });
}

void route_experts(const RoutingProblem& problem, const Parallel& parallel) {
  const RoutingKernels& kernels = routing_kernels();
  parallel.for_each(problem.tokens, rows_per_task(problem.experts), [&](int64_t begin, int64_t end) {
    kernels.route_experts(problem, begin, end);
  });
}

template <class Id, class Position>
void group_by_expert(const Id* ids, int64_t size, int64_t experts, Position* order, Position* counts) {
  const auto belongs = [&](Id id) { return id >= 0 && static_cast<int64_t>(id) < experts; };
  std::fill_n(counts, experts, Position{0});
  for (int64_t i = 0; i < size; ++i) {
    if (belongs(ids[i])) {
      ++counts[ids[i]];
    }
  }
  std::vector<Position> next(static_cast<size_t>(experts) + 1);
  for (int64_t expert = 0; expert < experts; ++expert) {
    next[expert + 1] = next[expert] + counts[expert];
  }
  for (int64_t i = 0; i < size; ++i) {
    order[next[belongs(ids[i]) ? ids[i] : experts]++] = static_cast<Position>(i);
  }
}

template void group_by_expert(const int32_t*, int64_t, int64_t, int64_t*, int64_t*);
template void group_by_expert(const int64_t*, int64_t, int64_t, int64_t*, int64_t*);
template void group_by_expert(const int32_t*, int64_t, int64_t, int32_t*, int32_t*);
template void group_by_expert(const int64_t*, int64_t, int64_t, int32_t*, int32_t*);

}  // namespace mudnn
