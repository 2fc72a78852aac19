// Attention: softmax(scale * Q K^T) V, with the maps of what attends to what that models use.
#pragma once

#include "mudnn/kv_pages.h"
#include "mudnn/parallel.h"
#include "mudnn/types.h"

namespace mudnn {

/// Rows of a head dimension, contiguous; strides in elements. With `starts` of the problem the rows of all sequences
/// follow each other and `batch` is not used.
struct AttentionRows {
  const void* data;
  int64_t batch;
  int64_t head;
  int64_t row;
};

/// A number or a truth value for each pair of a query and a key; strides in elements, 0 where it is broadcast.
struct AttentionMask {
  enum class Kind : uint8_t { kNone, kBool, kFloat32, kBfloat16, kFloat16 };
  Kind kind = Kind::kNone;
  const void* data = nullptr;
  int64_t batch = 0;
  int64_t head = 0;
  int64_t query = 0;
  int64_t key = 0;
};

/// One truth value for each block of query_size x key_size pairs; strides in elements.
struct AttentionBlocks {
  const uint8_t* live = nullptr;
  int64_t batch = 0;
  int64_t head = 0;
  int64_t row = 0;
  int64_t query_size = 1;
  int64_t key_size = 1;
};

/// Keys and values in pages instead of rows; then these rows' `data` is the page tensors', and query_starts is given.
struct AttentionPages {
  const int32_t* table = nullptr;  // [batches, width]
  int64_t width = 0;
  const int32_t* lengths = nullptr;  // [batches]: keys of each
  KvPages key = {};
  KvPages value = {};
};

struct AttentionProblem {
  Dtype dtype;
  int64_t batches;
  int64_t heads;
  int64_t kv_heads;  // divides heads
  int64_t queries;   // of each batch, or the most of any
  int64_t keys;
  int64_t head_dim;
  int64_t value_dim;
  AttentionRows query;
  AttentionRows key;
  AttentionRows value;
  void* out;
  int64_t out_batch;
  int64_t out_head;
  int64_t out_row;
  float* logsumexp = nullptr;  // of a query: at batch, head and row; may be null
  int64_t logsumexp_batch = 0;
  int64_t logsumexp_head = 0;
  int64_t logsumexp_row = 1;
  const int32_t* query_starts = nullptr;  // batches + 1 rows each; null: `queries` rows a batch
  const int32_t* key_starts = nullptr;
  float scale;
  float softcap = 0;         // s = softcap * tanh(s / softcap); 0: none
  bool bottom_right = false;  // the last query stands at the last key; otherwise the first at the first
  // Query at position p sees keys p - left .. p + right, and those below global_keys up to p + right; -1: no bound.
  int64_t left = -1;
  int64_t right = -1;
  int64_t global_keys = 0;
  const float* sinks = nullptr;  // [heads]: one more score that takes part in the sum and has no value
  AttentionMask mask;
  AttentionBlocks blocks;
  AttentionPages pages = {};
};

/// Ways to compute it; each sums in an order of its own, kTiles in one that doesn't depend on the number of queries.
enum class AttentionWay {
  kStreams,  // keys and values are read where they lie, once for all rows that share them: for few rows
  kTiles,    // keys and values are packed, tiles of queries walk over them
};
/// Why the way can't take the problem; null: it can.
const char* attention_excludes(AttentionWay way, const AttentionProblem& problem);
/// Nanoseconds that it takes about, on one thread.
double attention_estimate(AttentionWay way, const AttentionProblem& problem);
/// By estimates, or where a row must not depend on the number of others, kTiles.
AttentionWay attention_way(const AttentionProblem& problem);

/// Scores are float32, rounded to the dtype of the values before they multiply these; sums are float32. A query that
/// sees nothing gets zeros and a log-sum-exp of -infinity.
void attention(AttentionWay way, const AttentionProblem& problem, const Parallel& parallel);

/// Work of tiles of queries: task = (batch * kv_heads + kv head) * tiles + tile of all rows of the group.
struct AttentionPrefillKernels {
  int64_t tile_rows;
  void (*run)(const AttentionProblem& problem, int64_t tiles, int64_t begin, int64_t end);
};

/// What a split of the keys gives: for each row of the group its maximum, its sum and value_dim numbers.
struct AttentionPartials {
  float* data;
  int64_t splits;
  int64_t split_keys;
};
constexpr int64_t kDecodeRows = 16;

/// Work for few queries: task = (batch * kv_heads + kv head) * splits + split; then merges of batch * kv_heads.
struct AttentionDecodeKernels {
  void (*run)(const AttentionProblem& problem, const AttentionPartials& partials, int64_t begin, int64_t end);
  void (*merge)(const AttentionProblem& problem, const AttentionPartials& partials, int64_t begin, int64_t end);
};

/// The same tasks for keys and values in pages; what they leave is merged by AttentionDecodeKernels.
struct AttentionPagedKernels {
  void (*run)(const AttentionProblem& problem, const AttentionPartials& partials, int64_t begin, int64_t end);
};

}  // namespace mudnn
