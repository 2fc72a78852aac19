// Queries, keys and values of tokens out of the product of their three projections: split, normalised, rotated.
#pragma once

#include "mudnn/kv_pages.h"
#include "mudnn/parallel.h"
#include "mudnn/rows.h"
#include "mudnn/types.h"

namespace mudnn {

struct QkvProblem {
  Dtype dtype;         // of qkv, q, k and v
  Dtype weight_dtype;  // of the weights: dtype or float32
  Dtype angle_dtype;
  int64_t tokens;
  int64_t heads;
  int64_t kv_heads;
  int64_t head_dim;
  ConstRows qkv;           // of a token: heads queries, kv_heads keys, kv_heads values, of head_dim elements each
  const void* q_weight;    // optional [head_dim]: heads are divided by the root of their mean square and multiplied
  const void* k_weight;    // by weight + offset
  float weight_offset;
  double eps;              // added to the mean square
  int64_t rotary_dim;      // even; the rest of a head is not rotated
  bool interleaved;        // pairs (2 i, 2 i + 1), else (i, i + rotary_dim / 2)
  bool whole;              // cos and sin have rotary_dim entries, else rotary_dim / 2, one for each pair
  const void* cos;
  const void* sin;
  int64_t angle_stride;    // of their rows
  const int64_t* positions;  // optional [tokens]: the rows of cos and sin; else those of the same number
  void* q;                 // [tokens, heads, head_dim]
  void* k;                 // [tokens, kv_heads, head_dim]; not looked at where there are slots
  void* v;                 // [tokens, kv_heads, head_dim]; the same
  const int64_t* slots = nullptr;  // optional [tokens]: where keys and values go in pages; below 0: nowhere
  KvPages pages{};
  void* key_pages = nullptr;
  void* value_pages = nullptr;
};

/// Everything is computed in float32 and rounded once.
void split_qkv(const QkvProblem& problem, const Parallel& parallel);

struct QkvKernels {
  /// Tokens begin .. end.
  void (*split)(const QkvProblem& problem, int64_t begin, int64_t end);
};

}  // namespace mudnn
