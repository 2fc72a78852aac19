// Attention of few queries, which is bound by the reading of keys and values: these are used where they lie, four
// streams a quarter of a split apart, once for all query heads that share them.
#include "mudnn/attention.h"
#include "mudnn/kernels/attention_streams.h"
#include "mudnn/scratch.h"

#include <math.h>

namespace mudnn {
namespace {

constexpr int64_t kStep = 16;  // keys of each stream that are worked on before the next rows

/// What the masks make of one row's scores, which lie in the order of the streams.
void mask_row(const Task& t, float* scores, float* line, int64_t row) {
  const AttentionProblem& p = t.p;
  const int64_t head = t.head(row);
  const int64_t query = t.query(row);
  for (int s = 0; s < kStreams; ++s) {
    for (int64_t i = 0; i < t.quarter; ++i) {
      line[s * t.quarter + i] = scores[i * kStreams + s];
    }
  }
  if (finishes_scores(p)) {
    finish_scores(p, line, t.batch, head, query, t.first, t.count);
  }
  hide_scores(p, t.sequence, line, t.batch, head, query, t.first, t.count);
  for (int s = 0; s < kStreams; ++s) {
    for (int64_t i = 0; i < t.quarter; ++i) {
      scores[i * kStreams + s] = line[s * t.quarter + i];
    }
  }
}

template <class Kind, class T>
void run_split(const AttentionProblem& p, const AttentionPartials& partials, int64_t task) {
  const int64_t split = task % partials.splits;
  Task t(p, task / partials.splits, split * partials.split_keys, partials.split_keys);
  float* partial = partials.data + task * partial_size(p);
  float* sums = partial + 2 * kDecodeRows;
  const int64_t columns = round_up(p.value_dim, Vec::kLanes);
  for (int64_t r = 0; r < t.rows; ++r) {
    partial[2 * r] = kMinusInfinity;
    partial[2 * r + 1] = 0;
  }
  memset(sums, 0, static_cast<size_t>(t.rows * columns) * sizeof(float));
  if (t.count <= 0 || t.rows == 0) {
    return;
  }
  const int64_t padded = round_up(t.quarter * kStreams, Vec::kLanes);
  const int64_t width = Kind::query_width(p.head_dim);
  char* memory = static_cast<char*>(scratch(
      1,
      static_cast<size_t>(t.rows * padded) * (sizeof(float) + sizeof(typename Kind::Weight)) +
          static_cast<size_t>(t.rows * width) * sizeof(typename Kind::Query) + static_cast<size_t>(padded) * 4 + 256));
  float* scores = reinterpret_cast<float*>(memory);
  float* line = scores + t.rows * padded;
  auto* weights = reinterpret_cast<typename Kind::Weight*>(line + padded);
  auto* query = reinterpret_cast<typename Kind::Query*>(weights + t.rows * padded);
  Kind::template copy<T>(t, query);

  const Reader<T> keys = reader<T>(t, p.key);
  for (int64_t i = 0; i < t.quarter; i += kStep) {
    const int64_t end = at_most(t.quarter, i + kStep);
    for_rows(t.rows, [&]<int Rows>(int64_t r) {
      Kind::template score<Rows>(t, keys, query + r * width, scores + r * padded, padded, i, end);
    });
  }
  const float factor = softmax_factor(p);
  const bool masks = finishes_scores(p) || p.left >= 0 || p.right >= 0 || p.blocks.live != nullptr;
  for (int64_t r = 0; r < t.rows; ++r) {
    float* row = scores + r * padded;
    if (masks) {
      mask_row(t, row, line, r);
    }
    for (int64_t key = t.count; key < t.quarter * kStreams; ++key) {
      row[key % t.quarter * kStreams + key / t.quarter] = kMinusInfinity;
    }
    for (int64_t i = t.quarter * kStreams; i < padded; ++i) {
      row[i] = kMinusInfinity;
    }
    Vec highest = splat(kMinusInfinity);
    for (int64_t i = 0; i < padded; i += Vec::kLanes) {
      highest = max(highest, load(row + i));
    }
    const float maximum = reduce_max(highest);
    const Vec shift = splat(maximum == kMinusInfinity ? 0.0f : maximum);
    Vec total = zero();
    for (int64_t i = 0; i < padded; i += Vec::kLanes) {
      const Vec weight = exp2_to_0<Kind::kDegree>((load(row + i) - shift) * splat(factor));
      total = total + weight;
      Kind::store_weight(weights + r * padded, i, weight);
    }
    partial[2 * r] = maximum;
    partial[2 * r + 1] = reduce_add(total);
  }
  const Reader<T> values = reader<T>(t, p.value);
  for (int64_t i = 0; i < t.quarter; i += kStep) {
    const int64_t end = at_most(t.quarter, i + kStep);
    for_rows(t.rows, [&]<int Rows>(int64_t r) {
      Kind::template weigh<Rows>(t, values, weights + r * padded, padded, sums + r * columns, i, end);
    });
  }
}

template <class T>
void merge_pair(const AttentionProblem& p, const AttentionPartials& partials, int64_t pair) {
  const Task t(p, pair, 0, 0);
  const float factor = softmax_factor(p);
  const int64_t columns = round_up(p.value_dim, Vec::kLanes);
  const float* first = partials.data + pair * partials.splits * partial_size(p);
  float* result = static_cast<float*>(scratch(1, static_cast<size_t>(columns) * sizeof(float)));
  for (int64_t r = 0; r < t.rows; ++r) {
    const int64_t head = t.head(r);
    const float sink = p.sinks == nullptr ? kMinusInfinity : p.sinks[head] * kLog2E / factor;
    float maximum = sink;
    for (int64_t split = 0; split < partials.splits; ++split) {
      const float m = first[split * partial_size(p) + 2 * r];
      maximum = m > maximum ? m : maximum;
    }
    const float shift = maximum == kMinusInfinity ? 0.0f : maximum;
    float total = p.sinks == nullptr ? 0.0f : exp2_to_0((sink - shift) * factor);
    memset(result, 0, static_cast<size_t>(columns) * sizeof(float));
    for (int64_t split = 0; split < partials.splits; ++split) {
      const float* partial = first + split * partial_size(p);
      const float weight = exp2_to_0((partial[2 * r] - shift) * factor);
      total += partial[2 * r + 1] * weight;
      const float* sums = partial + 2 * kDecodeRows + r * columns;
      for (int64_t i = 0; i < columns; i += Vec::kLanes) {
        store(result + i, fma(splat(weight), load(sums + i), load(result + i)));
      }
    }
    const Vec inverse = splat(total == 0 ? 0.0f : 1.0f / total);
    const bool varlen = p.query_starts != nullptr;
    T* out = static_cast<T*>(p.out) + head * p.out_head + (t.sequence.query_start + t.query(r)) * p.out_row +
        (varlen ? 0 : t.batch * p.out_batch);
    for_vectors(p.value_dim, [&](int64_t i, int count) { store_up_to(out + i, load(result + i) * inverse, count); });
    if (p.logsumexp != nullptr) {
      float* lse = p.logsumexp + head * p.logsumexp_head + (t.sequence.query_start + t.query(r)) * p.logsumexp_row +
          (varlen ? 0 : t.batch * p.logsumexp_batch);
      *lse = total == 0 ? kMinusInfinity : maximum * (factor / kLog2E) + logf(total);
    }
  }
}

void run(const AttentionProblem& problem, const AttentionPartials& partials, int64_t begin, int64_t end) {
  for (int64_t task = begin; task < end; ++task) {
    switch (problem.dtype) {
      case Dtype::kFloat32:
        run_split<Plain, float>(problem, partials, task);
        break;
      case Dtype::kFloat16:
        run_split<Plain, Float16>(problem, partials, task);
        break;
      case Dtype::kBfloat16:
#if MUDNN_LEVEL == 2
        run_split<Paired, Bfloat16>(problem, partials, task);
#else
        run_split<Plain, Bfloat16>(problem, partials, task);
#endif
        break;
    }
  }
}

void merge(const AttentionProblem& problem, const AttentionPartials& partials, int64_t begin, int64_t end) {
  for (int64_t pair = begin; pair < end; ++pair) {
    switch (problem.dtype) {
      case Dtype::kFloat32:
        merge_pair<float>(problem, partials, pair);
        break;
      case Dtype::kFloat16:
        merge_pair<Float16>(problem, partials, pair);
        break;
      case Dtype::kBfloat16:
        merge_pair<Bfloat16>(problem, partials, pair);
        break;
    }
  }
}

}  // namespace

MUDNN_TABLE(AttentionDecodeKernels, attention_decode) = {run, merge};

}  // namespace mudnn
