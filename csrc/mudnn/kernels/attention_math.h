// What the attention kernels share: powers of two for the softmax, and which pairs of a row attend.
#pragma once

#include "mudnn/attention.h"
#include "mudnn/kernels/vec.h"

namespace mudnn {
namespace {

constexpr float kLog2E = 1.44269504f;
constexpr float kMinusInfinity = -__builtin_inff();

/// 2^x for x <= 0, 0 for -infinity. Degree: of the series of 2^r, |r| <= 1/2; 7 gives float32's accuracy, 4 an error of
/// 4e-5, a hundredth of the rounding to a 16-bit type.
template <int Degree>
MUDNN_INLINE Vec exp2_to_0(Vec x) {
  x = max(splat(-150.0f), x);
  const Vec n = round(x);
  const Vec r = x - n;
  Vec p = splat(Degree == 7 ? 1.52527338e-5f : 9.61812911e-3f);
  if constexpr (Degree == 7) {
    p = fma(p, r, splat(1.54035304e-4f));
    p = fma(p, r, splat(1.33335581e-3f));
    p = fma(p, r, splat(9.61812911e-3f));
  }
  p = fma(p, r, splat(5.55041087e-2f));
  p = fma(p, r, splat(2.40226507e-1f));
  p = fma(p, r, splat(6.93147181e-1f));
  p = fma(p, r, splat(1.0f));
  return scale_by_power(p, n);
}

MUDNN_INLINE float exp2_to_0(float x) {
  float result = 0;
  store_part(&result, exp2_to_0<7>(splat(x)), 1);
  return result;
}

template <class T>
MUDNN_INLINE float element(const T* p) {
  float result = 0;
  store_part(&result, load_part(p, 1), 1);
  return result;
}
template <>
MUDNN_INLINE float element(const float* p) {
  return *p;
}

MUDNN_INLINE int64_t at_most(int64_t a, int64_t b) { return a < b ? a : b; }
MUDNN_INLINE int64_t at_least(int64_t a, int64_t b) { return a > b ? a : b; }
MUDNN_INLINE int64_t round_up(int64_t n, int64_t unit) { return (n + unit - 1) / unit * unit; }

/// Rows and keys of one batch of a problem.
struct Sequence {
  int64_t queries, keys;
  int64_t query_start, key_start;  // in rows, from the start of all
  int64_t offset;                  // position of query 0
};

MUDNN_INLINE Sequence sequence_of(const AttentionProblem& problem, int64_t batch) {
  Sequence s{problem.queries, problem.keys, 0, 0, 0};
  if (problem.query_starts != nullptr) {
    s.query_start = problem.query_starts[batch];
    s.queries = problem.query_starts[batch + 1] - s.query_start;
  }
  if (problem.key_starts != nullptr) {
    s.key_start = problem.key_starts[batch];
    s.keys = problem.key_starts[batch + 1] - s.key_start;
  }
  if (problem.pages.table != nullptr) {
    s.keys = problem.pages.lengths[batch];
  }
  s.offset = problem.bottom_right ? s.keys - s.queries : 0;
  return s;
}

template <class T>
MUDNN_INLINE const T* rows_of(
    const AttentionRows& rows, const int32_t* starts, int64_t start, int64_t batch, int64_t head) {
  return static_cast<const T*>(rows.data) + head * rows.head +
      (starts != nullptr ? start * rows.row : batch * rows.batch);
}

/// Whether scores are finished one by one (scaled, capped, masked) before the softmax, or scaled inside of it.
MUDNN_INLINE bool finishes_scores(const AttentionProblem& problem) {
  return problem.softcap > 0 || problem.mask.kind != AttentionMask::Kind::kNone || !(problem.scale > 0);
}
/// What a score is multiplied by to become a power of two.
MUDNN_INLINE float softmax_factor(const AttentionProblem& problem) {
  return finishes_scores(problem) ? kLog2E : problem.scale * kLog2E;
}

MUDNN_INLINE Vec tanh_of(Vec x) {
  const Vec e = exp(min(x + x, splat(80.0f)));
  return splat(1.0f) - splat(2.0f) / (e + splat(1.0f));
}

/// One score's mask: what is added to it, -infinity where it is dead.
MUDNN_INLINE float mask_element(const AttentionMask& mask, int64_t index) {
  switch (mask.kind) {
    case AttentionMask::Kind::kBool:
      return static_cast<const uint8_t*>(mask.data)[index] != 0 ? 0.0f : kMinusInfinity;
    case AttentionMask::Kind::kFloat32:
      return static_cast<const float*>(mask.data)[index];
    case AttentionMask::Kind::kBfloat16:
      return element(static_cast<const Bfloat16*>(mask.data) + index);
    case AttentionMask::Kind::kFloat16:
      return element(static_cast<const Float16*>(mask.data) + index);
    case AttentionMask::Kind::kNone:
      break;
  }
  return 0;
}

template <class T>
MUDNN_INLINE void add_row(float* scores, const T* mask, int64_t n) {
  for_vectors(n, [&](int64_t i, int count) {
    store_up_to(scores + i, load_up_to(scores + i, count) + load_up_to(mask + i, count), count);
  });
}

/// Scores of query `row` with keys first .. first + n: scale, cap and mask them where finishes_scores().
inline void finish_scores(
    const AttentionProblem& problem, float* scores, int64_t batch, int64_t head, int64_t row, int64_t first,
    int64_t n) {
  const Vec scale = splat(problem.scale);
  if (problem.softcap > 0) {
    const Vec cap = splat(problem.softcap);
    const Vec inverse = splat(1.0f / problem.softcap);
    for_vectors(n, [&](int64_t i, int count) {
      const Vec s = load_up_to(scores + i, count) * scale;
      store_up_to(scores + i, cap * tanh_of(s * inverse), count);
    });
  } else {
    for_vectors(
        n, [&](int64_t i, int count) { store_up_to(scores + i, load_up_to(scores + i, count) * scale, count); });
  }
  const AttentionMask& mask = problem.mask;
  if (mask.kind == AttentionMask::Kind::kNone) {
    return;
  }
  const int64_t start = batch * mask.batch + head * mask.head + row * mask.query + first * mask.key;
  if (mask.key == 1 && mask.kind == AttentionMask::Kind::kFloat32) {
    add_row(scores, static_cast<const float*>(mask.data) + start, n);
  } else if (mask.key == 1 && mask.kind == AttentionMask::Kind::kBfloat16) {
    add_row(scores, static_cast<const Bfloat16*>(mask.data) + start, n);
  } else if (mask.key == 1 && mask.kind == AttentionMask::Kind::kFloat16) {
    add_row(scores, static_cast<const Float16*>(mask.data) + start, n);
  } else if (mask.kind == AttentionMask::Kind::kBool) {
    const uint8_t* live = static_cast<const uint8_t*>(mask.data) + start;
    for (int64_t i = 0; i < n; ++i) {
      scores[i] = live[i * mask.key] != 0 ? scores[i] : kMinusInfinity;
    }
  } else {
    for (int64_t i = 0; i < n; ++i) {
      scores[i] += mask_element(mask, start + i * mask.key);
    }
  }
}

/// Keys that the window lets a query see: global .. and low .. high.
struct Visible {
  int64_t low, high, global;
};
MUDNN_INLINE Visible visible_keys(const AttentionProblem& problem, const Sequence& sequence, int64_t row) {
  const int64_t position = row + sequence.offset;
  const int64_t high =
      problem.right >= 0 ? at_least(0, at_most(sequence.keys, position + problem.right + 1)) : sequence.keys;
  const int64_t low = problem.left >= 0 ? at_least(0, position - problem.left) : 0;
  return {at_most(low, high), high, at_most(problem.global_keys, high)};
}

MUDNN_INLINE bool block_live(const AttentionProblem& p, int64_t batch, int64_t head, int64_t row, int64_t key) {
  return p.blocks.live
             [batch * p.blocks.batch + head * p.blocks.head + row / p.blocks.query_size * p.blocks.row +
              key / p.blocks.key_size] != 0;
}

/// Makes scores of pairs that don't attend -infinity, for keys first .. first + n.
inline void hide_scores(
    const AttentionProblem& problem, const Sequence& sequence, float* scores, int64_t batch, int64_t head, int64_t row,
    int64_t first, int64_t n) {
  const Visible visible = visible_keys(problem, sequence, row);
  for (int64_t i = at_most(n, at_least(0, visible.high - first)); i < n; ++i) {
    scores[i] = kMinusInfinity;
  }
  const int64_t low = at_most(n, visible.low - first);
  for (int64_t i = at_least(0, visible.global - first); i < low; ++i) {
    scores[i] = kMinusInfinity;
  }
  if (problem.blocks.live != nullptr) {
    for (int64_t i = 0; i < n;) {
      const int64_t next = at_most(n, ((first + i) / problem.blocks.key_size + 1) * problem.blocks.key_size - first);
      if (!block_live(problem, batch, head, row, first + i)) {
        for (int64_t j = i; j < next; ++j) {
          scores[j] = kMinusInfinity;
        }
      }
      i = next;
    }
  }
}

}  // namespace
}  // namespace mudnn
