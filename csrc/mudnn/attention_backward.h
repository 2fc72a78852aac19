// Gradients of attention.
#pragma once

#include "mudnn/attention.h"

namespace mudnn {

/// Rows to write; strides in elements, rows contiguous.
struct AttentionGradientRows {
  void* data;
  int64_t batch;
  int64_t head;
  int64_t row;
};

/// What the backward pass has beyond the problem, whose `out` is not used and whose `logsumexp` is read.
struct AttentionGradients {
  AttentionRows out;
  AttentionRows grad_out;
  const float* grad_logsumexp;  // [batches, heads, queries], contiguous; null: zeros
  AttentionGradientRows grad_query;
  AttentionGradientRows grad_key;    // [batches, kv_heads, keys, head_dim]: the sum over the group
  AttentionGradientRows grad_value;
  float* grad_sinks;  // [batches, heads], contiguous; null: not wanted
};

/// Without `query_starts` and `key_starts`. Weights and their gradients are float32, rounded to the dtype of the
/// values before they multiply queries, keys and gradients, as in the forward pass; sums are float32. A query whose
/// log-sum-exp is -infinity gets and gives no gradient.
void attention_backward(const AttentionProblem& problem, const AttentionGradients& gradients, const Parallel& parallel);

/// Task = batch * kv_heads + kv head: a sum over queries must not depend on how the work is split.
struct AttentionBackwardKernels {
  void (*run)(const AttentionProblem& problem, const AttentionGradients& gradients, int64_t begin, int64_t end);
};

}  // namespace mudnn
