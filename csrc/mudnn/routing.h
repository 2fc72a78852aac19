// The k largest of each row, and the choice of experts for tokens.
//
// Largest first; of equal values the one with the lower index first; NaN counts as larger than every number.
#pragma once

#include "mudnn/parallel.h"
#include "mudnn/types.h"

namespace mudnn {

/// Rows of `columns` values, each row contiguous; `row_stride` in elements. values and ids: [rows, k], contiguous.
struct TopKProblem {
  Dtype dtype;
  int64_t rows;
  int64_t columns;
  int64_t k;
  const void* row_values;
  int64_t row_stride;
  void* values;
  int64_t* ids;
};

void top_k(const TopKProblem& problem, const Parallel& parallel);

/// Experts for tokens, from the scores of all experts: [tokens, experts], contiguous.
struct RoutingProblem {
  int64_t tokens;
  int64_t experts;
  int64_t k;
  const float* scores;
  const float* bias;  // [experts], added to the scores for the choice alone; or null
  int64_t groups;     // equal parts of the experts; 1: no such limit
  int64_t top_groups;
  int64_t group_best;  // a group counts for the sum of this many (1 or 2) of its best
  bool renormalize;
  float scaling;
  float* weights;  // [tokens, k]
  int64_t* ids;    // [tokens, k]
};

void route_experts(const RoutingProblem& problem, const Parallel& parallel);

/// order: the positions of `ids` by expert, in their own order within each, those whose id is outside 0 .. experts at
/// the end. counts: how many belong to each expert. `Id` is int32_t or int64_t, as are the results.
template <class Id, class Position>
void group_by_expert(const Id* ids, int64_t size, int64_t experts, Position* order, Position* counts);

/// Of one instruction set: work on rows begin .. end.
struct RoutingKernels {
  void (*top_k)(const TopKProblem& problem, int64_t begin, int64_t end);
  void (*route_experts)(const RoutingProblem& problem, int64_t begin, int64_t end);
};

}  // namespace mudnn
