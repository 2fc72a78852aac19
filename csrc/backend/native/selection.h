// What the choice among variants says about itself.
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>
#include <string>
#include <vector>

namespace musa {

struct ExplainedVariant {
  std::string name;
  double estimate = 0;         // nanoseconds by the model; 0: it has no figure
  std::optional<double> time;  // nanoseconds, where measured
  std::string excluded;        // why it isn't a candidate; empty: it is
};

struct Explanation {
  std::string key;
  std::vector<ExplainedVariant> variants;
  std::string taken;
  std::string source;  // what decided
};

/// Of the product [batch, m, k] x [batch, k, n] of contiguous or by columns stored operands. `measure`: each variant is
/// timed now, on operands of its own, and nothing is kept.
struct ProductQuestion {
  std::string op;  // "mm", "bmm", ...: which entry of TORCH_MUSA_SIM_NATIVE it obeys
  int64_t batch, m, n, k;
  c10::ScalarType dtype;
  bool a_by_columns, b_by_columns;
  bool measure;
};
Explanation explain_product(const ProductQuestion& question);

/// Of scaled_dot_product_attention of contiguous tensors.
struct AttentionQuestion {
  int64_t batch, heads, kv_heads, queries, keys, head_dim;
  c10::ScalarType dtype;
  bool causal;
  bool measure;
};
Explanation explain_attention(const AttentionQuestion& question);

}  // namespace musa
