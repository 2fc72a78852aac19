#include "mudnn/attention.h"

#include <algorithm>

#include "mudnn/isa.h"
#include "mudnn/scratch.h"
#include "mudnn/selection.h"

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

void tiles(const AttentionProblem& problem, const Parallel& parallel) {
  const AttentionPrefillKernels& kernels = attention_prefill_kernels();
  const int64_t group = problem.heads / problem.kv_heads;
  const int64_t count = group * ((problem.queries + kernels.tile_rows - 1) / kernels.tile_rows);
  parallel.for_each(problem.batches * problem.kv_heads * count, 4, [&](int64_t begin, int64_t end) {
    kernels.run(problem, count, begin, end);
  });
}

// The model, in nanoseconds of one thread: a multiply-add of either way, a number that is packed, and a row of queries
// for each key (its exponential). The rows of a tile are padded to kTileRows.
struct Costs {
  double streams;
  double tiles;
  double pack;
  double weight;
};
constexpr int64_t kTileRows = 6;

const Costs& costs_of(const AttentionProblem& problem) {
  static constexpr Costs kCosts[][2] = {
      // float32 and float16, bfloat16
      {{0.12, 0.08, 0.6, 4}, {0.15, 0.08, 0.6, 4}},
      {{0.036, 0.025, 0.3, 1}, {0.04, 0.025, 0.3, 1}},
      {{0.028, 0.025, 0.2, 0.5}, {0.02, 0.012, 0.2, 0.5}},
  };
  return kCosts[static_cast<int>(isa())][problem.dtype == Dtype::kBfloat16 ? 1 : 0];
}

}  // namespace

const char* attention_excludes(AttentionWay way, const AttentionProblem& problem) {
  const int64_t group = problem.heads / std::max<int64_t>(1, problem.kv_heads);
  return way == AttentionWay::kStreams && group * problem.queries > kDecodeRows
      ? "more than 16 rows of queries share a head of keys"
      : nullptr;
}

double attention_estimate(AttentionWay way, const AttentionProblem& problem) {
  const Costs& costs = costs_of(problem);
  const auto keys = static_cast<double>(problem.batches * problem.keys);
  const auto dims = static_cast<double>(problem.head_dim + problem.value_dim);
  const auto numbers = keys * static_cast<double>(problem.kv_heads) * dims;
  const auto rows = static_cast<double>(problem.heads * problem.queries);
  if (way == AttentionWay::kStreams) {
    return numbers * (problem.dtype == Dtype::kFloat32 ? 0.16 : 0.08) +
        keys * rows * (dims * costs.streams + costs.weight);
  }
  const int64_t padded = (problem.queries + kTileRows - 1) / kTileRows * kTileRows * problem.heads;
  return numbers * costs.pack + keys * (static_cast<double>(padded) * dims * costs.tiles + rows * costs.weight);
}

AttentionWay attention_way(const AttentionProblem& problem) {
  const bool streams = attention_excludes(AttentionWay::kStreams, problem) == nullptr &&
      !batch_invariant.load(std::memory_order_relaxed) &&
      attention_estimate(AttentionWay::kStreams, problem) <= attention_estimate(AttentionWay::kTiles, problem);
  return streams ? AttentionWay::kStreams : AttentionWay::kTiles;
}

void attention(AttentionWay way, const AttentionProblem& problem, const Parallel& parallel) {
  if (problem.batches * problem.kv_heads == 0 || problem.queries == 0) {
    return;
  }
  if (way == AttentionWay::kStreams) {
    decode(problem, parallel);
  } else {
    tiles(problem, parallel);
  }
}

}  // namespace mudnn
