// Gradients of attention. The weights are computed again from the log-sum-exp, in rectangles of queries and keys. A
// head's queries and gradients are brought into the order of the products once; then blocks of keys, whose gradients
// stay in the cache, walk over the tiles of queries. Weights with queries as steps are read across: their gradients
// need no transposing.
#include "mudnn/attention_backward.h"
#include "mudnn/kernels/attention_tile.h"
#include "mudnn/scratch.h"

#include <math.h>

namespace mudnn {
namespace {

// Whole groups of the product's rows and whole panels.
constexpr int64_t kTile = 96;
constexpr int64_t kKeys = 192;
static_assert(kTile % kTileRows == 0 && kKeys % kTileRows == 0 && kKeys % kPanel == 0 && kKeys <= kMostRows);

template <class Kind>
struct Workspace {
  using Item = typename Kind::Item;
  static constexpr int64_t kTileSteps = kTile / Kind::kDepth;
  static constexpr int64_t kKeySteps = kKeys / Kind::kDepth;

  explicit Workspace(const AttentionProblem& p)
      : steps(steps_of<Kind>(p.head_dim)),
        value_steps(steps_of<Kind>(p.value_dim)),
        columns(round_up(p.head_dim, Vec::kLanes)),
        value_columns(round_up(p.value_dim, Vec::kLanes)),
        tiles((p.queries + kTile - 1) / kTile),
        blocks((p.keys + kKeys - 1) / kKeys) {
    const int64_t panels = round_up(p.head_dim, kPanel);
    query_items = panels * kTileSteps;
    grad_items = round_up(p.value_dim, kPanel) * kTileSteps;
    const int64_t rows = tiles * kTile;
    const int64_t items = rows * (steps + value_steps) + tiles * (query_items + grad_items);
    const int64_t floats = rows * (columns + 2) + blocks * kKeys * (columns + value_columns);
    float* memory = static_cast<float*>(scratch(0, static_cast<size_t>(floats + items) * sizeof(float) + 64));
    grad_query = memory;
    grad_key = grad_query + rows * columns;
    grad_value = grad_key + blocks * kKeys * columns;
    shifts = grad_value + blocks * kKeys * value_columns;
    deltas = shifts + rows;
    query_left = reinterpret_cast<Item*>(deltas + rows);
    grad_left = query_left + rows * steps;
    query_right = grad_left + rows * value_steps;
    grad_right = query_right + tiles * query_items;

    const int64_t block_items = kKeys * (steps + value_steps) + panels * kKeySteps;
    const int64_t tile_items = kTileSteps * kKeys * 2 + kTile * kKeySteps;
    const int64_t tile_floats = kTile * kKeys * 2 + kKeys;
    memory = static_cast<float*>(
        scratch(1, static_cast<size_t>(block_items + tile_items + tile_floats) * sizeof(float) + 64));
    scores = memory;
    slopes = scores + kTile * kKeys;
    caps = slopes + kTile * kKeys;
    keys_across = reinterpret_cast<Item*>(caps + kKeys);
    values_across = keys_across + kKeys * steps;
    keys_right = values_across + kKeys * value_steps;
    weights_across = keys_right + panels * kKeySteps;
    slopes_across = weights_across + kTileSteps * kKeys;
    slopes_left = slopes_across + kTileSteps * kKeys;
  }

  int64_t steps, value_steps, columns, value_columns, tiles, blocks, query_items, grad_items;
  // Of a head, all its queries; gradients of keys and values: of the group.
  float* grad_query;
  float* grad_key;
  float* grad_value;
  float* shifts;  // log-sum-exp as a power of two, infinity where nothing is seen
  float* deltas;  // what all of a row's gradients of weights are diminished by
  Item* query_left;
  Item* grad_left;
  Item* query_right;
  Item* grad_right;
  // Of a block of keys.
  Item* keys_across;
  Item* values_across;
  Item* keys_right;
  // Of a tile of queries and a block.
  float* scores;
  float* slopes;
  float* caps;
  Item* weights_across;
  Item* slopes_across;
  Item* slopes_left;
};

template <class T>
const T* rows_at(const AttentionRows& rows, int64_t batch, int64_t head) {
  return static_cast<const T*>(rows.data) + batch * rows.batch + head * rows.head;
}

template <class T>
float dot(const T* a, const T* b, int64_t n) {
  Vec sum = zero();
  for_vectors(n, [&](int64_t i, int count) { sum = fma(load_up_to(a + i, count), load_up_to(b + i, count), sum); });
  return reduce_add(sum);
}

template <class Kind, class T>
void pack_head(
    Workspace<Kind>& w, const AttentionProblem& p, const AttentionGradients& g, int64_t batch, int64_t head) {
  const T* query = rows_at<T>(p.query, batch, head);
  const T* grad = rows_at<T>(g.grad_out, batch, head);
  const T* out = rows_at<T>(g.out, batch, head);
  for (int64_t tile = 0; tile < w.tiles; ++tile) {
    const int64_t first = tile * kTile;
    const int64_t rows = at_most(kTile, p.queries - first);
    const T* q = query + first * p.query.row;
    const T* d = grad + first * g.grad_out.row;
    copy_left<Kind>(w.query_left + first * w.steps, q, p.query.row, rows, kTile, p.head_dim);
    copy_left<Kind>(w.grad_left + first * w.value_steps, d, g.grad_out.row, rows, kTile, p.value_dim);
    pack_straight<Kind>(w.query_right + tile * w.query_items, q, p.query.row, rows, p.head_dim, kTile);
    pack_straight<Kind>(w.grad_right + tile * w.grad_items, d, g.grad_out.row, rows, p.value_dim, kTile);
  }
  const float* lse = p.logsumexp + batch * p.logsumexp_batch + head * p.logsumexp_head;
  const float* grad_lse =
      g.grad_logsumexp == nullptr ? nullptr : g.grad_logsumexp + (batch * p.heads + head) * p.queries;
  float sink = 0;
  for (int64_t r = 0; r < w.tiles * kTile; ++r) {
    w.shifts[r] = -kMinusInfinity;
    w.deltas[r] = 0;
    if (r >= p.queries || lse[r * p.logsumexp_row] == kMinusInfinity) {
      continue;
    }
    w.shifts[r] = lse[r * p.logsumexp_row] * kLog2E;
    w.deltas[r] =
        dot(grad + r * g.grad_out.row, out + r * g.out.row, p.value_dim) - (grad_lse == nullptr ? 0.0f : grad_lse[r]);
    if (g.grad_sinks != nullptr) {
      sink -= exp2_to_0(p.sinks[head] * kLog2E - w.shifts[r]) * w.deltas[r];
    }
  }
  if (g.grad_sinks != nullptr) {
    g.grad_sinks[batch * p.heads + head] = sink;
  }
  memset(w.grad_query, 0, static_cast<size_t>(w.tiles * kTile * w.columns) * sizeof(float));
}

/// Scores of a row to what the softmax takes; caps: the derivative of the cap, where there is one.
template <class Kind>
void finish_row(
    Workspace<Kind>& w, const AttentionProblem& p, float* scores, int64_t batch, int64_t head, int64_t query,
    int64_t first, int64_t n) {
  if (!(p.softcap > 0)) {
    finish_scores(p, scores, batch, head, query, first, n);
    return;
  }
  AttentionProblem part = p;
  part.mask = {};
  finish_scores(part, scores, batch, head, query, first, n);
  const Vec inverse = splat(1.0f / p.softcap);
  for_vectors(n, [&](int64_t i, int count) {
    const Vec t = load_up_to(scores + i, count) * inverse;
    store_up_to(w.caps + i, splat(1.0f) - t * t, count);
  });
  part = p;
  part.softcap = 0;
  part.scale = 1;
  finish_scores(part, scores, batch, head, query, first, n);
}

struct RowGradients {
  Vec weight, slope;
};
template <class Kind>
MUDNN_INLINE RowGradients gradients_of(const Workspace<Kind>& w, int64_t row, int64_t r, int64_t i, Vec factor) {
  const Vec power = fma(load(w.scores + r * kKeys + i), factor, splat(-w.shifts[row + r]));
  // Powers above 0 are those of a log-sum-exp that is not the scores'.
  const Vec weight = exp2_to_0<Kind::kDegree>(min(splat(127.0f), power));
  return {weight, weight * (load(w.slopes + r * kKeys + i) - splat(w.deltas[row + r]))};
}

/// Scores and slopes become weights and gradients of scores in the orders of the products.
template <class Kind>
void weigh(Workspace<Kind>& w, int64_t row, int64_t rows, int64_t padded, float factor) {
  const Vec f = splat(factor);
  for (int64_t r = 0; r < rows; r += Kind::kDepth) {
    for (int64_t i = 0; i < padded; i += Vec::kLanes) {
      const RowGradients even = gradients_of(w, row, r, i, f);
      if constexpr (Kind::kDepth == 1) {
        store(w.weights_across + r * kKeys + i, even.weight);
        store(w.slopes_across + r * kKeys + i, even.slope);
      } else {
#if MUDNN_LEVEL == 2
        const RowGradients odd = gradients_of(w, row, r + 1, i, f);
        const auto pair = [](__m256i low, __m256i high) {
          return _mm512_or_si512(_mm512_cvtepu16_epi32(low), _mm512_slli_epi32(_mm512_cvtepu16_epi32(high), 16));
        };
        const auto narrow = [](Vec v) { return reinterpret_cast<__m256i>(_mm512_cvtneps_pbh(v.v)); };
        const __m256i low = narrow(even.slope);
        const __m256i high = narrow(odd.slope);
        const int64_t step = r / 2 * kKeys + i;
        _mm512_storeu_si512(w.weights_across + step, pair(narrow(even.weight), narrow(odd.weight)));
        _mm512_storeu_si512(w.slopes_across + step, pair(low, high));
        _mm256_storeu_si256(reinterpret_cast<__m256i*>(w.slopes_left + r * (kKeys / 2) + i / 2), low);
        _mm256_storeu_si256(reinterpret_cast<__m256i*>(w.slopes_left + (r + 1) * (kKeys / 2) + i / 2), high);
#endif
      }
    }
  }
}

/// One rectangle: keys begin .. end of the block at `start`, queries of one tile.
template <class Kind>
void run_rectangle(
    Workspace<Kind>& w, const AttentionProblem& p, const Sequence& sequence, int64_t batch, int64_t head, int64_t tile,
    int64_t start, int64_t begin, int64_t end) {
  using Item = typename Kind::Item;
  const int64_t first = tile * kTile;
  const int64_t rows = at_most(kTile, p.queries - first);
  const int64_t padded_rows = round_up(rows, kTileRows);
  const int64_t skipped = begin - start;
  const int64_t count = end - begin;
  // Gradients of keys are computed in whole groups of rows; those past `end` may be keys too and must get nothing.
  const int64_t key_rows = round_up(count, kTileRows);
  const int64_t padded = round_up(key_rows, Vec::kLanes);
  score_product<Kind>(
      padded_rows, count, w.query_left + first * w.steps, w.steps, w.keys_across + skipped * w.steps, w.steps, w.scores,
      kKeys);
  score_product<Kind>(
      padded_rows, count, w.grad_left + first * w.value_steps, w.value_steps, w.values_across + skipped * w.value_steps,
      w.value_steps, w.slopes, kKeys);
  const Visible low = visible_keys(p, sequence, first);
  const Visible high = visible_keys(p, sequence, first + rows - 1);
  const bool all = p.blocks.live == nullptr && end <= low.high && (begin >= high.low || end <= low.global);
  const bool finishes = finishes_scores(p);
  for (int64_t r = 0; r < padded_rows; ++r) {
    float* scores = w.scores + r * kKeys;
    float* slopes = w.slopes + r * kKeys;
    if (r < rows && finishes) {
      finish_row(w, p, scores, batch, head, first + r, begin, count);
    }
    if (r < rows && !all) {
      hide_scores(p, sequence, scores, batch, head, first + r, begin, count);
    }
    for (int64_t i = count; i < padded; ++i) {
      scores[i] = kMinusInfinity;
      slopes[i] = 0;
    }
    if (p.softcap > 0 && r < rows) {
      // The cap's derivative belongs to the row's gradient as a whole.
      const Vec delta = splat(w.deltas[first + r]);
      for_vectors(count, [&](int64_t i, int n) {
        const Vec slope = (load_up_to(slopes + i, n) - delta) * load_up_to(w.caps + i, n) + delta;
        store_up_to(slopes + i, slope, n);
      });
    }
  }
  weigh<Kind>(w, first, padded_rows, padded, softmax_factor(p));
  const int64_t steps = steps_of<Kind>(padded_rows);
  wide_product<Kind, true>(
      key_rows, p.value_dim, w.weights_across, kKeys, w.grad_right + tile * w.grad_items, Workspace<Kind>::kTileSteps,
      steps, w.grad_value + begin * w.value_columns, w.value_columns, kOnes.factors);
  wide_product<Kind, true>(
      key_rows, p.head_dim, w.slopes_across, kKeys, w.query_right + tile * w.query_items, Workspace<Kind>::kTileSteps,
      steps, w.grad_key + begin * w.columns, w.columns, kOnes.factors);
  const Item* left = Kind::kDepth == 1 ? w.slopes_across : w.slopes_left;
  wide_product<Kind>(
      padded_rows, p.head_dim, left, Workspace<Kind>::kKeySteps, w.keys_right + skipped / Kind::kDepth * kPanel,
      Workspace<Kind>::kKeySteps, steps_of<Kind>(count), w.grad_query + first * w.columns, w.columns, kOnes.factors);
}

template <class Kind, class T>
void run_head(
    Workspace<Kind>& w, const AttentionProblem& p, const AttentionGradients& g, const Sequence& sequence, int64_t batch,
    int64_t head) {
  const int64_t kv_head = head / (p.heads / p.kv_heads);
  pack_head<Kind, T>(w, p, g, batch, head);
  for (int64_t start = 0; start < p.keys; start += kKeys) {
    const int64_t count = at_most(kKeys, p.keys - start);
    bool packed = false;
    for (int64_t tile = 0; tile < w.tiles; ++tile) {
      const int64_t first = tile * kTile;
      const Visible low = visible_keys(p, sequence, first);
      const Visible high = visible_keys(p, sequence, at_most(first + kTile, p.queries) - 1);
      int64_t begin = start;
      int64_t end = at_most(start + count, high.high);
      if (end <= low.low) {
        end = at_most(end, high.global);
      }
      while (begin + kPanel <= low.low && begin >= high.global) {
        begin += kPanel;
      }
      if (end <= begin) {
        continue;
      }
      if (!packed) {
        const T* k = rows_at<T>(p.key, batch, kv_head) + start * p.key.row;
        const T* v = rows_at<T>(p.value, batch, kv_head) + start * p.value.row;
        pack_transposed<Kind>(w.keys_across, k, p.key.row, count, p.head_dim);
        pack_transposed<Kind>(w.values_across, v, p.value.row, count, p.value_dim);
        pack_straight<Kind>(w.keys_right, k, p.key.row, count, p.head_dim, kKeys);
        packed = true;
      }
      run_rectangle<Kind>(w, p, sequence, batch, head, tile, start, begin, end);
    }
  }
}

template <class T>
void write_rows(
    const AttentionGradientRows& to, int64_t batch, int64_t head, const float* from, int64_t rows, int64_t columns,
    int64_t stride, float factor) {
  const Vec f = splat(factor);
  for (int64_t r = 0; r < rows; ++r) {
    T* row = static_cast<T*>(to.data) + batch * to.batch + head * to.head + r * to.row;
    const float* numbers = from + r * stride;
    for_vectors(
        columns, [&](int64_t i, int count) { store_up_to(row + i, load_up_to(numbers + i, count) * f, count); });
  }
}

template <class Kind, class T>
void run_pairs(const AttentionProblem& p, const AttentionGradients& g, int64_t begin, int64_t end) {
  Workspace<Kind> w(p);
  const int64_t group = p.heads / p.kv_heads;
  for (int64_t task = begin; task < end; ++task) {
    const int64_t batch = task / p.kv_heads;
    const int64_t kv_head = task % p.kv_heads;
    const Sequence sequence = sequence_of(p, batch);
    const int64_t keys = w.blocks * kKeys;
    memset(w.grad_key, 0, static_cast<size_t>(keys * (w.columns + w.value_columns)) * sizeof(float));
    for (int64_t head = kv_head * group; head < (kv_head + 1) * group; ++head) {
      run_head<Kind, T>(w, p, g, sequence, batch, head);
      write_rows<T>(g.grad_query, batch, head, w.grad_query, p.queries, p.head_dim, w.columns, p.scale);
    }
    write_rows<T>(g.grad_key, batch, kv_head, w.grad_key, p.keys, p.head_dim, w.columns, p.scale);
    write_rows<T>(g.grad_value, batch, kv_head, w.grad_value, p.keys, p.value_dim, w.value_columns, 1);
  }
}

void run(const AttentionProblem& problem, const AttentionGradients& gradients, int64_t begin, int64_t end) {
  switch (problem.dtype) {
    case Dtype::kFloat32:
      return run_pairs<Floats, float>(problem, gradients, begin, end);
    case Dtype::kFloat16:
      return run_pairs<Floats, Float16>(problem, gradients, begin, end);
    case Dtype::kBfloat16:
#if MUDNN_LEVEL == 2
      return run_pairs<Pairs, Bfloat16>(problem, gradients, begin, end);
#else
      return run_pairs<Floats, Bfloat16>(problem, gradients, begin, end);
#endif
  }
}

}  // namespace

MUDNN_TABLE(AttentionBackwardKernels, attention_backward) = {run};

}  // namespace mudnn
