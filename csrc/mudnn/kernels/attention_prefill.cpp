// Attention of many queries: tiles of queries walk over blocks of keys with a running softmax. The keys and values of a
// head are brought into the order of the products once and serve all tiles of its group.
#include "mudnn/attention.h"
#include "mudnn/kernels/attention_pages.h"
#include "mudnn/kernels/attention_tile.h"
#include "mudnn/scratch.h"

#include <math.h>

namespace mudnn {
namespace {

constexpr int64_t kTile = 64;
constexpr int64_t kRows = (kTile + kTileRows - 1) / kTileRows * kTileRows;
constexpr int64_t kKeys = 128;

/// Working memory of one thread: what is packed for one KV head, and the state of one tile.
template <class Kind>
struct Workspace {
  using Item = typename Kind::Item;

  explicit Workspace(const AttentionProblem& problem)
      : steps(steps_of<Kind>(problem.head_dim)),
        columns(round_up(problem.value_dim, Vec::kLanes)),
        key_items(kKeys * steps),
        value_items(round_up(problem.value_dim, kPanel) * steps_of<Kind>(kKeys)),
        blocks((problem.keys + kKeys - 1) / kKeys) {
    keys = static_cast<Item*>(scratch(0, static_cast<size_t>(blocks * (key_items + value_items)) * sizeof(Item)));
    const size_t row_items = static_cast<size_t>(kRows * (steps + kKeys)) * sizeof(Item);
    const size_t row_floats = static_cast<size_t>(kRows * (kKeys + columns + 3)) * sizeof(float);
    char* memory = static_cast<char*>(scratch(1, row_items + row_floats + static_cast<size_t>(blocks) + 256));
    scores = reinterpret_cast<float*>(memory);
    sums = scores + kRows * kKeys;
    maxima = sums + kRows * columns;
    totals = maxima + kRows;
    factors = totals + kRows;
    weights = reinterpret_cast<Item*>(factors + kRows + 4);
    queries = weights + kRows * kKeys;
    packed = reinterpret_cast<uint8_t*>(queries + kRows * steps);
    forget();
  }

  void forget() { memset(packed, 0, static_cast<size_t>(blocks)); }
  Item* keys_of(int64_t block) { return keys + block * (key_items + value_items); }
  Item* values_of(int64_t block) { return keys_of(block) + key_items; }

  int64_t steps, columns, key_items, value_items, blocks;
  Item* keys;
  Item* queries;
  Item* weights;
  float* scores;
  float* sums;
  float* maxima;
  float* totals;
  float* factors;
  uint8_t* packed;
};

template <class Kind, class T>
void pack_block(
    Workspace<Kind>& w, const AttentionProblem& p, const Sequence& sequence, int64_t batch, int64_t kv_head,
    int64_t block) {
  if (w.packed[block] != 0) {
    return;
  }
  w.packed[block] = 1;
  const int64_t first = block * kKeys;
  const int64_t count = at_most(kKeys, sequence.keys - first);
  if (p.pages.table != nullptr) {
    pack_pages<Kind, T>(
        p, batch, kv_head, first, count, w.keys_of(block), w.values_of(block), w.steps, steps_of<Kind>(kKeys));
    return;
  }
  const T* k = rows_of<T>(p.key, p.key_starts, sequence.key_start, batch, kv_head) + first * p.key.row;
  const T* v = rows_of<T>(p.value, p.key_starts, sequence.key_start, batch, kv_head) + first * p.value.row;
  pack_transposed<Kind>(w.keys_of(block), k, p.key.row, count, p.head_dim);
  pack_straight<Kind>(w.values_of(block), v, p.value.row, count, p.value_dim, kKeys);
}

/// Whether any, and whether all pairs of a rectangle are live in the map of blocks.
struct Liveness {
  bool any, all;
};
inline Liveness liveness(
    const AttentionProblem& p, int64_t batch, int64_t head, int64_t row, int64_t row_end, int64_t key,
    int64_t key_end) {
  if (p.blocks.live == nullptr) {
    return {true, true};
  }
  Liveness found{false, true};
  for (int64_t r = row / p.blocks.query_size; r <= (row_end - 1) / p.blocks.query_size; ++r) {
    for (int64_t k = key / p.blocks.key_size; k <= (key_end - 1) / p.blocks.key_size; ++k) {
      const bool live = p.blocks.live[batch * p.blocks.batch + head * p.blocks.head + r * p.blocks.row + k] != 0;
      found.any |= live;
      found.all &= live;
    }
  }
  return found;
}

/// One row's scores become weights; what was summed so far is to be multiplied by its factor.
template <class Kind>
MUDNN_INLINE void softmax_row(Workspace<Kind>& w, int64_t row, int64_t count, float factor) {
  const float* scores = w.scores + row * kKeys;
  const int64_t padded = round_up(count, Vec::kLanes);
  Vec highest = splat(kMinusInfinity);
  for (int64_t i = 0; i < padded; i += Vec::kLanes) {
    highest = max(highest, load(scores + i));
  }
  const float before = w.maxima[row];
  const float top = reduce_max(highest);
  const float maximum = top > before ? top : before;
  const float shift = maximum == kMinusInfinity ? 0.0f : maximum;
  const Vec shifts = splat(shift);
  const Vec scale = splat(factor);
  Vec total = zero();
  typename Kind::Item* weights = w.weights + row * (kKeys / Kind::kDepth);
  for (int64_t i = 0; i < padded; i += Vec::kLanes) {
    const Vec weight = exp2_to_0<Kind::kDegree>((load(scores + i) - shifts) * scale);
    total = total + weight;
    store_left<Kind>(weights, i, weight);
  }
  const float old = exp2_to_0((before - shift) * factor);
  w.factors[row] = old;
  w.totals[row] = w.totals[row] * old + reduce_add(total);
  w.maxima[row] = maximum;
}

template <class Kind, class T>
void finish_row(
    Workspace<Kind>& w, const AttentionProblem& p, const Sequence& sequence, int64_t batch, int64_t head, int64_t row,
    int64_t query, float factor) {
  float maximum = w.maxima[row];
  float total = w.totals[row];
  float rescale = 1;
  if (p.sinks != nullptr) {
    // The sink is a finished score; bring it to the unit of the others.
    const float sink = p.sinks[head] * kLog2E / factor;
    const float highest = sink > maximum ? sink : maximum;
    rescale = exp2_to_0((maximum - highest) * factor);
    total = total * rescale + exp2_to_0((sink - highest) * factor);
    maximum = highest;
  }
  const Vec inverse = splat(total == 0 ? 0.0f : rescale / total);
  const float* sums = w.sums + row * w.columns;
  T* out = static_cast<T*>(p.out) + head * p.out_head + (sequence.query_start + query) * p.out_row +
      (p.query_starts == nullptr ? batch * p.out_batch : 0);
  for_vectors(p.value_dim, [&](int64_t i, int count) { store_up_to(out + i, load(sums + i) * inverse, count); });
  if (p.logsumexp != nullptr) {
    float* lse = p.logsumexp + head * p.logsumexp_head + (sequence.query_start + query) * p.logsumexp_row +
        (p.query_starts == nullptr ? batch * p.logsumexp_batch : 0);
    *lse = total == 0 ? kMinusInfinity : maximum * (factor / kLog2E) + logf(total);
  }
}

template <class Kind, class T>
void run_tile(
    Workspace<Kind>& w, const AttentionProblem& p, const Sequence& sequence, int64_t batch, int64_t head,
    int64_t first_query) {
  using Item = typename Kind::Item;
  const int64_t rows = at_most(kTile, sequence.queries - first_query);
  const int64_t padded_rows = round_up(rows, kTileRows);
  const int64_t kv_head = head / (p.heads / p.kv_heads);
  const float factor = softmax_factor(p);
  const bool finishes = finishes_scores(p);
  const T* q = rows_of<T>(p.query, p.query_starts, sequence.query_start, batch, head) + first_query * p.query.row;
  copy_left<Kind>(w.queries, q, p.query.row, rows, padded_rows, p.head_dim);
  memset(w.sums, 0, static_cast<size_t>(padded_rows * w.columns) * sizeof(float));
  for (int64_t r = 0; r < padded_rows; ++r) {
    w.maxima[r] = kMinusInfinity;
    w.totals[r] = 0;
    w.factors[r] = 0;
  }
  const int64_t weight_steps = kKeys / Kind::kDepth;
  memset(
      w.weights + rows * weight_steps, 0,
      static_cast<size_t>((padded_rows - rows) * weight_steps) * sizeof(*w.weights));
  const Visible first = visible_keys(p, sequence, first_query);
  const Visible last = visible_keys(p, sequence, first_query + rows - 1);
  for (int64_t start = 0; start < last.high; start += kKeys) {
    int64_t begin = start;
    int64_t end = at_most(start + kKeys, last.high);
    if (end <= first.low) {
      end = at_most(end, last.global);
      if (end <= begin) {
        continue;
      }
    }
    const auto live_keys = [&](int64_t from, int64_t to) {
      return liveness(p, batch, head, first_query, first_query + rows, from, to);
    };
    // Panels at the ends that no query of the tile sees.
    while (begin + kPanel < end &&
           ((begin + kPanel <= first.low && begin >= last.global) || !live_keys(begin, begin + kPanel).any)) {
      begin += kPanel;
    }
    while (begin + kPanel < end && !live_keys(begin + (end - 1 - begin) / kPanel * kPanel, end).any) {
      end = begin + (end - 1 - begin) / kPanel * kPanel;
    }
    const Liveness live = live_keys(begin, end);
    if (!live.any) {
      continue;
    }
    const int64_t block = start / kKeys;
    pack_block<Kind, T>(w, p, sequence, batch, kv_head, block);
    const int64_t skipped = begin - start;
    const Item* keys = w.keys_of(block) + skipped * w.steps;
    const Item* values = w.values_of(block) + skipped / Kind::kDepth * kPanel;
    const int64_t count = end - begin;
    score_product<Kind>(padded_rows, count, w.queries, w.steps, keys, w.steps, w.scores, kKeys);
    const bool all = live.all && end <= first.high && (begin >= last.low || end <= first.global);
    const int64_t padded = round_up(count, Vec::kLanes);
    for (int64_t r = 0; r < rows; ++r) {
      float* scores = w.scores + r * kKeys;
      if (finishes) {
        finish_scores(p, scores, batch, head, first_query + r, begin, count);
      }
      if (!all) {
        hide_scores(p, sequence, scores, batch, head, first_query + r, begin, count);
      }
      for (int64_t i = count; i < padded; ++i) {
        scores[i] = kMinusInfinity;
      }
      softmax_row(w, r, count, factor);
    }
    wide_product<Kind>(
        padded_rows, p.value_dim, w.weights, weight_steps, values, weight_steps, steps_of<Kind>(count), w.sums,
        w.columns, w.factors);
  }
  for (int64_t r = 0; r < rows; ++r) {
    finish_row<Kind, T>(w, p, sequence, batch, head, r, first_query + r, factor);
  }
}

template <class Kind, class T>
void run_tiles(const AttentionProblem& p, int64_t tiles, int64_t begin, int64_t end) {
  Workspace<Kind> w(p);
  const int64_t group = p.heads / p.kv_heads;
  const int64_t head_tiles = tiles / group;
  int64_t packed = begin / tiles;
  for (int64_t task = begin; task < end; ++task) {
    const int64_t pair = task / tiles;
    const int64_t batch = pair / p.kv_heads;
    const Sequence sequence = sequence_of(p, batch);
    const int64_t query = task % head_tiles * kTile;
    if (query >= sequence.queries) {
      continue;
    }
    if (pair != packed) {
      w.forget();
      packed = pair;
    }
    run_tile<Kind, T>(w, p, sequence, batch, pair % p.kv_heads * group + task % tiles / head_tiles, query);
  }
}

void run(const AttentionProblem& problem, int64_t tiles, int64_t begin, int64_t end) {
  switch (problem.dtype) {
    case Dtype::kFloat32:
      return run_tiles<Floats, float>(problem, tiles, begin, end);
    case Dtype::kFloat16:
      return run_tiles<Floats, Float16>(problem, tiles, begin, end);
    case Dtype::kBfloat16:
#if MUDNN_LEVEL == 2
      return run_tiles<Pairs, Bfloat16>(problem, tiles, begin, end);
#else
      return run_tiles<Floats, Bfloat16>(problem, tiles, begin, end);
#endif
  }
}

}  // namespace

MUDNN_TABLE(AttentionPrefillKernels, attention_prefill) = {kTile, run};

}  // namespace mudnn
