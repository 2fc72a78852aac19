// Work of a mixture of experts: out = sum over the chosen experts of weight * down(activation(gate x) * up x).
#pragma once

#include "mudnn/glu.h"
#include "mudnn/parallel.h"
#include "mudnn/types.h"

namespace mudnn {

/// What stands between the two products: activation(gate) * up, or situ of both.
struct Gating {
  Activation activation = Activation::kSilu;
  float situ_beta = 4;
  float situ_linear_beta = 25;
};

/// All operands contiguous, of `dtype` where nothing else is said.
struct MoeProblem {
  Dtype dtype;
  int64_t tokens;
  int64_t hidden;
  int64_t inner;
  int64_t experts;
  int64_t k;
  const void* x;         // [tokens, hidden]
  const void* gate_up;   // [experts, 2 * inner, hidden]: gate, then up
  const void* down;      // [experts, hidden, inner]
  const void* ids;       // [tokens, k]; those outside 0 .. experts are left out
  bool wide_ids;         // int64_t, else int32_t
  const float* weights;  // [tokens, k]
  Gating gating;
  // An expert that every token goes to; its weights null where there is none.
  int64_t shared_inner;
  const void* shared_gate_up;
  const void* shared_down;
  const float* shared_scale;  // [tokens] or null: 1
  void* out;                  // [tokens, hidden]
  int64_t* counts;            // [experts]: tokens of each
};

/// Products and sums in float32; what lies between the two products is rounded to `dtype` once, the result once. A
/// token's result depends on nothing but its own x, ids and weights: experts are added up in the order of their ids,
/// the shared one last.
void fused_moe(const MoeProblem& problem, const Parallel& parallel);

/// One expert and the tokens that are its.
struct MoeExpert {
  const void* gate_up;
  const void* down;
  int64_t inner;
  int64_t count;
  const void* x;          // [count, hidden]
  void* activated;        // [count, inner]
  const int32_t* tokens;  // [count]; null: 0, 1, ...
  const float* weights;   // [count]; null: 1
};

struct MoeWork {
  Dtype dtype;
  int64_t tokens;
  int64_t hidden;
  Gating gating;
  const MoeExpert* experts;
  int64_t expert_count;
  int64_t most_tokens;  // of an expert
  void* out;
};

/// Of one instruction set.
struct MoeKernels {
  /// activated, columns begin .. end of each half of them (rounded up).
  void (*expand)(const MoeWork& work, const MoeExpert& expert, int64_t begin, int64_t end);
  /// out, columns begin .. end of each quarter of them (rounded up).
  void (*combine)(const MoeWork& work, int64_t begin, int64_t end);
};

/// Columns that one call of expand takes at most.
constexpr int64_t kMostExpanded = 256;

}  // namespace mudnn
