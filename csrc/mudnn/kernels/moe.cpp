#include "mudnn/moe.h"

#include "mudnn/kernels/dtypes.h"
#include "mudnn/kernels/gating.h"
#include "mudnn/kernels/gemm_dot.h"
#include "mudnn/scratch.h"

namespace mudnn {
namespace {

MUDNN_INLINE int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }

/// Row i - begin of `products` ([count, rows, 4]): the rows of x times four rows of weights.
template <class T>
MUDNN_INLINE void dot_all(
    const T* x, int64_t count, const T* const (&right)[kDotStreams], int64_t depth, float* products, int64_t stride) {
  for (int64_t first = 0; first < count; first += kDotRows) {
    const int rows = static_cast<int>(least(kDotRows, count - first));
    dot_rows(x + first * depth, depth, rows, right, depth, products + first * stride, stride);
  }
}

template <class T>
void expand_columns(const MoeWork& work, const MoeExpert& expert, int64_t begin, int64_t end) {
  const int64_t depth = work.hidden;
  const int64_t inner = expert.inner;
  const int64_t half = (inner + 1) / 2;
  const int64_t columns = end - begin;
  const int64_t stride = columns * kDotStreams;
  const T* x = static_cast<const T*>(expert.x);
  const T* gate = static_cast<const T*>(expert.gate_up);
  const T* up = gate + inner * depth;
  auto* products = static_cast<float*>(scratch(1, static_cast<size_t>(expert.count * stride) * sizeof(float)));
  for (int64_t i = begin; i < end; ++i) {
    // Where the second half is shorter its last row is computed again, and left out below.
    const int64_t other = least(half + i, inner - 1);
    const T* const right[kDotStreams] = {gate + i * depth, up + i * depth, gate + other * depth, up + other * depth};
    dot_all(x, expert.count, right, depth, products + (i - begin) * kDotStreams, stride);
  }
  for (int64_t row = 0; row < expert.count; ++row) {
    float parts[kDotStreams][kMostExpanded];
    const float* from = products + row * stride;
    for (int64_t i = 0; i < columns; ++i) {
      for (int part = 0; part < kDotStreams; ++part) {
        parts[part][i] = from[i * kDotStreams + part];
      }
    }
    for (int64_t part = 0; part < 2; ++part) {
      const int64_t first = part * half + begin;
      T* to = static_cast<T*>(expert.activated) + row * inner + first;
      for_activation(work.gating.activation, [&]<Activation kActivation>() {
        for_vectors(least(columns, inner - first), [&](int64_t i, int count) {
          const Vec v = gated<kActivation, sizeof(T) == 2>(
              work.gating, load_up_to(parts[2 * part] + i, count), load_up_to(parts[2 * part + 1] + i, count));
          store_up_to(to + i, v, count);
        });
      });
    }
  }
}

void expand(const MoeWork& work, const MoeExpert& expert, int64_t begin, int64_t end) {
  for_dtype(work.dtype, [&](auto element) { expand_columns<decltype(element)>(work, expert, begin, end); });
}

template <class T>
void combine_columns(const MoeWork& work, int64_t begin, int64_t end) {
  const int64_t quarter = (work.hidden + kDotStreams - 1) / kDotStreams;
  const int64_t columns = end - begin;
  const int64_t stride = columns * kDotStreams;
  auto* sums =
      static_cast<float*>(scratch(1, static_cast<size_t>((work.tokens + work.most_tokens) * stride) * sizeof(float)));
  float* products = sums + work.tokens * stride;
  memset(sums, 0, static_cast<size_t>(work.tokens * stride) * sizeof(float));
  for (int64_t e = 0; e < work.expert_count; ++e) {
    const MoeExpert& expert = work.experts[e];
    const T* down = static_cast<const T*>(expert.down);
    for (int64_t i = begin; i < end; ++i) {
      const T* right[kDotStreams];
      for (int64_t j = 0; j < kDotStreams; ++j) {
        right[j] = down + least(j * quarter + i, work.hidden - 1) * expert.inner;
      }
      dot_all(
          static_cast<const T*>(expert.activated), expert.count, right, expert.inner,
          products + (i - begin) * kDotStreams, stride);
    }
    for (int64_t row = 0; row < expert.count; ++row) {
      float* sum = sums + (expert.tokens == nullptr ? row : expert.tokens[row]) * stride;
      const float* product = products + row * stride;
      const Vec weight = splat(expert.weights == nullptr ? 1.0f : expert.weights[row]);
      for_vectors(stride, [&](int64_t i, int count) {
        store_up_to(sum + i, fma(weight, load_up_to(product + i, count), load_up_to(sum + i, count)), count);
      });
    }
  }
  for (int64_t token = 0; token < work.tokens; ++token) {
    const float* sum = sums + token * stride;
    for (int64_t j = 0; j < kDotStreams; ++j) {
      const int64_t column = j * quarter + begin;
      T* out = static_cast<T*>(work.out) + token * work.hidden + column;
      for_vectors(least(columns, work.hidden - column), [&](int64_t i, int count) {
        float lanes[Vec::kLanes] = {};
        for (int lane = 0; lane < count; ++lane) {
          lanes[lane] = sum[(i + lane) * kDotStreams + j];
        }
        store_up_to(out + i, load(lanes), count);
      });
    }
  }
}

void combine(const MoeWork& work, int64_t begin, int64_t end) {
  for_dtype(work.dtype, [&](auto element) { combine_columns<decltype(element)>(work, begin, end); });
}

}  // namespace

MUDNN_TABLE(MoeKernels, moe) = {expand, combine};

}  // namespace mudnn
