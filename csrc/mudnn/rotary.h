// Rotary position embedding of queries and keys.
#pragma once

#include "mudnn/parallel.h"
#include "mudnn/types.h"

namespace mudnn {

/// Heads of one tensor; strides in elements, the elements of a head are adjacent.
struct RotaryHeads {
  const void* in;
  void* out;  // may be `in`
  int64_t heads;
  int64_t in_batch, in_token, in_head;
  int64_t out_batch, out_token, out_head;
};

struct RotaryProblem {
  Dtype dtype;
  Dtype angle_dtype;
  int64_t batches;
  int64_t tokens;
  int64_t head_dim;
  int64_t rotary_dim;  // even; the rest of a head is passed through
  bool interleaved;    // pairs (2 i, 2 i + 1), else (i, i + rotary_dim / 2)
  bool whole;          // cos and sin have rotary_dim entries, else rotary_dim / 2, one for each pair
  const void* cos;
  const void* sin;
  int64_t angle_batch, angle_token;  // strides of cos and sin
  const int64_t* positions;          // optional [batches * tokens]: the row of cos and sin instead of (batch, token)
  RotaryHeads sides[2];
};

/// (a, b) of a pair becomes (a cos - b sin, b cos + a sin), in float32 and rounded once.
void rotate(const RotaryProblem& problem, const Parallel& parallel);

struct RotaryKernels {
  /// Tokens begin .. end of batches * tokens.
  void (*rotate)(const RotaryProblem& problem, int64_t begin, int64_t end);
};

}  // namespace mudnn
