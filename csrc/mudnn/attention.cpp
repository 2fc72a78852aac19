#include "mudnn/attention.h"

#include <algorithm>

#include "mudnn/isa.h"
#include "mudnn/scratch.h"

namespace mudnn {

MUDNN_TABLES_OF(AttentionPrefillKernels, attention_prefill)
MUDNN_TABLES_OF(AttentionDecodeKernels, attention_decode)
MUDNN_TABLES_OF(AttentionPagedKernels, attention_paged)

namespace {

// A split must not depend on the number of threads: the order of sums does on it.
constexpr int64_t kSplitKeys = 2048;
constexpr int64_t kMostVectorLanes = 16;

void decode(const AttentionProblem& problem, const Parallel& parallel) {
  const AttentionDecodeKernels& kernels = attention_decode_kernels();
  const auto run = problem.pages.table == nullptr ? kernels.run : attention_paged_kernels().run;
  const int64_t pairs = problem.batches * problem.kv_heads;
  const int64_t splits = std::max<int64_t>(1, (problem.keys + kSplitKeys - 1) / kSplitKeys);
  const int64_t columns = (problem.value_dim + kMostVectorLanes - 1) / kMostVectorLanes * kMostVectorLanes;
  const auto floats = static_cast<size_t>(pairs * splits * kDecodeRows * (2 + columns));
  const AttentionPartials partials{
      .data = static_cast<float*>(scratch(2, floats * sizeof(float))), .splits = splits, .split_keys = kSplitKeys};
  const int64_t grain = problem.keys >= 512 ? 1 : pairs;
  parallel.for_each(pairs * splits, grain, [&](int64_t begin, int64_t end) { run(problem, partials, begin, end); });
  parallel.for_each(pairs, pairs, [&](int64_t begin, int64_t end) { kernels.merge(problem, partials, begin, end); });
}

}  // namespace

void attention(const AttentionProblem& problem, const Parallel& parallel) {
  const int64_t group = problem.heads / std::max<int64_t>(1, problem.kv_heads);
  const int64_t pairs = problem.batches * problem.kv_heads;
  if (pairs == 0 || problem.queries == 0) {
    return;
  }
  if (group * problem.queries <= kDecodeRows) {
    decode(problem, parallel);
    return;
  }
  const AttentionPrefillKernels& kernels = attention_prefill_kernels();
  const int64_t tiles = group * ((problem.queries + kernels.tile_rows - 1) / kernels.tile_rows);
  parallel.for_each(pairs * tiles, 4, [&](int64_t begin, int64_t end) { kernels.run(problem, tiles, begin, end); });
}

}  // namespace mudnn
