// Operation counts of the kernels whose arithmetic is known from their shapes; a multiply-add counts as two.
#pragma once

#include <c10/util/ArrayRef.h>

#include <algorithm>
#include <cstdint>

namespace musa {

/// (m x k) times (k x n); multiply by the batch for bmm.
inline double mm_flops(int64_t m, int64_t n, int64_t k) {
  return 2.0 * static_cast<double>(m) * static_cast<double>(n) * static_cast<double>(k);
}

inline double element_count(c10::IntArrayRef sizes) {
  double count = 1;
  for (const int64_t size : sizes) {
    count *= static_cast<double>(size);
  }
  return count;
}

/// Forward of a convolution; sizes are (N, C, spatial...) and those of the weight as torch stores it, i.e.
/// (C_out, C_in / groups, kernel...) or, transposed, (C_in, C_out / groups, kernel...): groups need no argument.
/// The gradients of the input and of the weight cost as much each.
inline double convolution_flops(
    c10::IntArrayRef input, c10::IntArrayRef weight, c10::IntArrayRef output, bool transposed) {
  return 2.0 * element_count(transposed ? input : output) * element_count(weight.slice(1));
}

/// Pairs (query, key) that attend. Causal means top-left aligned, as torch's is_causal: query i sees keys 0 .. i.
inline double attended_pairs(int64_t queries, int64_t keys, bool causal) {
  const auto q = static_cast<double>(queries);
  const auto k = static_cast<double>(keys);
  if (!causal) {
    return q * k;
  }
  const double triangle = std::min(q, k);
  return triangle * (triangle + 1) / 2 + (q - triangle) * k;
}

/// Scaled dot product attention: the products Q K^T and P V; the softmax isn't counted.
inline double attention_flops(
    int64_t batch, int64_t heads, int64_t queries, int64_t keys, int64_t qk_dim, int64_t v_dim, bool causal) {
  return 2.0 * static_cast<double>(batch) * static_cast<double>(heads) * attended_pairs(queries, keys, causal) *
      static_cast<double>(qk_dim + v_dim);
}

/// Its backward with recomputed scores: Q K^T, dQ and dK over qk_dim, dP and dV over v_dim.
inline double attention_backward_flops(
    int64_t batch, int64_t heads, int64_t queries, int64_t keys, int64_t qk_dim, int64_t v_dim, bool causal) {
  return 2.0 * static_cast<double>(batch) * static_cast<double>(heads) * attended_pairs(queries, keys, causal) *
      static_cast<double>(3 * qk_dim + 2 * v_dim);
}

}  // namespace musa
