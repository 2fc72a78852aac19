// The gated delta rule: attention whose past is a matrix for each head, decayed and corrected by every token.
#pragma once

#include "mudnn/parallel.h"
#include "mudnn/types.h"

namespace mudnn {

/// Tokens of all sequences one after another, contiguous: q and k [tokens, heads, keys], v and out [tokens, heads,
/// values], beta [tokens, heads], decay (natural logarithm) [tokens, heads, keys] or [tokens, heads].
struct DeltaRuleProblem {
  Dtype dtype;  // of q, k, v, out
  int64_t sequences;
  int64_t heads;
  int64_t keys;
  int64_t values;
  const int64_t* bounds;  // sequences + 1: where each begins, and the end of the last
  const void* q;
  const void* k;
  const void* v;
  const float* decay;
  bool per_channel;  // whether decay has a number for each key channel
  const float* beta;
  const float* initial;  // [sequences, heads, keys, values]; null: zeros
  float* state;          // like initial: after the last token
  void* out;
  float scale;  // of q
  bool l2norm;  // q and k divided by sqrt(sum of squares + 1e-6)
};

/// Computed in float32; out is rounded once.
void delta_rule(const DeltaRuleProblem& problem, const Parallel& parallel);

/// Of one instruction set. Task (sequence * heads + head) * blocks + block works on `block_values` columns of a state.
struct DeltaRuleKernels {
  int64_t block_values;
  void (*run)(const DeltaRuleProblem& problem, int64_t blocks, int64_t begin, int64_t end);
};

}  // namespace mudnn
