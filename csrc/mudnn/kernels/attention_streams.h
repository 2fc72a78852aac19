// The products of attention_decode.cpp: a few query rows with keys and values where they lie, four streams of them. In
// float32, or, where the CPU multiplies bfloat16, in pairs of these.
#pragma once

#include "mudnn/attention.h"
#include "mudnn/kernels/attention_math.h"

namespace mudnn {
namespace {

constexpr int kStreams = 4;
constexpr int kBatch = 4;  // query rows at once

/// Element offsets of one partial: rows x (maximum, total), then rows x columns.
MUDNN_INLINE int64_t partial_size(const AttentionProblem& p) {
  return kDecodeRows * (2 + round_up(p.value_dim, Vec::kLanes));
}

/// body.operator()<n>(first row) for all rows, kBatch at a time.
template <class F>
MUDNN_INLINE void for_rows(int64_t rows, F&& body) {
  int64_t r = 0;
  for (; r + kBatch <= rows; r += kBatch) {
    body.template operator()<kBatch>(r);
  }
  switch (rows - r) {
    case 1:
      return body.template operator()<1>(r);
    case 2:
      return body.template operator()<2>(r);
    case 3:
      return body.template operator()<3>(r);
    default:
      return;
  }
}

/// Rows of a group of query heads: row r is query r % queries of head r / queries.
struct Task {
  const AttentionProblem& p;
  Sequence sequence;
  int64_t batch, kv_head, group, rows, first, count;
  int64_t quarter = 0;

  Task(const AttentionProblem& problem, int64_t pair, int64_t first_key, int64_t most)
      : p(problem),
        sequence(sequence_of(problem, pair / problem.kv_heads)),
        batch(pair / problem.kv_heads),
        kv_head(pair % problem.kv_heads),
        group(problem.heads / problem.kv_heads),
        rows(group * sequence.queries),
        first(first_key),
        count(at_least(0, at_most(most, sequence.keys - first_key))) {
    if (count > 0 && rows > 0) {
      leave_out_dead_ends();
    }
    quarter = (count + kStreams - 1) / kStreams;
  }

  /// Keys at the ends that no row sees.
  void leave_out_dead_ends() {
    const Visible early = visible_keys(p, sequence, 0);
    const Visible late = visible_keys(p, sequence, sequence.queries - 1);
    int64_t end = at_most(first + count, late.high);
    if (first >= late.global) {
      first = at_least(first, early.low);
    } else if (end <= early.low) {
      end = at_most(end, late.global);
    }
    count = at_least(0, end - first);
  }

  int64_t head(int64_t row) const { return kv_head * group + row / sequence.queries; }
  int64_t query(int64_t row) const { return row % sequence.queries; }
};

template <class T>
struct Reader {
  const T* data;
  int64_t stride;
  int64_t last;
  MUDNN_INLINE const T* operator()(int64_t key) const { return data + at_most(key, last) * stride; }
};

template <class T>
MUDNN_INLINE Reader<T> reader(const Task& t, const AttentionRows& rows) {
  return {
      rows_of<T>(rows, t.p.key_starts, t.sequence.key_start, t.batch, t.kv_head) + t.first * rows.row, rows.row,
      t.count - 1};
}

/// The i-th key of each stream, and sums at zero.
template <int Rows, class T>
MUDNN_INLINE void begin_keys(
    const Task& t, const Reader<T>& keys, int64_t i, const T* (&k)[kStreams], Vec (&sums)[Rows][kStreams]) {
#pragma GCC unroll 4
  for (int s = 0; s < kStreams; ++s) {
    k[s] = keys(s * t.quarter + i);
#pragma GCC unroll 4
    for (int r = 0; r < Rows; ++r) {
      sums[r][s] = zero();
    }
  }
}

/// scores[row][i * 4 + stream] of `Rows` rows with keys stream * quarter + i, i of begin .. end.
template <int Rows, class T>
void score_rows(
    const Task& t, const Reader<T>& keys, const float* q, float* scores, int64_t stride, int64_t begin, int64_t end) {
  const int64_t width = round_up(t.p.head_dim, Vec::kLanes);
  for (int64_t i = begin; i < end; ++i) {
    const T* k[kStreams];
    Vec sums[Rows][kStreams];
    begin_keys(t, keys, i, k, sums);
    for_vectors(t.p.head_dim, [&](int64_t e, int count) {
#pragma GCC unroll 4
      for (int s = 0; s < kStreams; ++s) {
        const Vec key = load_up_to(k[s] + e, count);
#pragma GCC unroll 4
        for (int r = 0; r < Rows; ++r) {
          sums[r][s] = fma(load(q + r * width + e), key, sums[r][s]);
        }
      }
    });
#pragma GCC unroll 4
    for (int r = 0; r < Rows; ++r) {
#pragma GCC unroll 4
      for (int s = 0; s < kStreams; ++s) {
        scores[r * stride + i * kStreams + s] = reduce_add(sums[r][s]);
      }
    }
  }
}

/// sums[row][column] += weights of keys i of begin .. end of the four streams, times their values.
template <int Rows, class T>
void weigh_rows(
    const Task& t, const Reader<T>& values, const float* weights, int64_t stride, float* sums, int64_t begin,
    int64_t end) {
  const int64_t width = round_up(t.p.value_dim, Vec::kLanes);
  for_vectors(t.p.value_dim, [&](int64_t c, int count) {
    Vec total[Rows];
#pragma GCC unroll 4
    for (int r = 0; r < Rows; ++r) {
      total[r] = load(sums + r * width + c);
    }
    for (int64_t i = begin; i < end; ++i) {
#pragma GCC unroll 4
      for (int s = 0; s < kStreams; ++s) {
        const Vec value = load_up_to(values(s * t.quarter + i) + c, count);
#pragma GCC unroll 4
        for (int r = 0; r < Rows; ++r) {
          total[r] = fma(splat(weights[r * stride + i * kStreams + s]), value, total[r]);
        }
      }
    }
#pragma GCC unroll 4
    for (int r = 0; r < Rows; ++r) {
      store(sums + r * width + c, total[r]);
    }
  });
}

/// Rows as the products take them.
template <class T>
void copy_query(const Task& t, float* to) {
  const int64_t width = round_up(t.p.head_dim, Vec::kLanes);
  for (int64_t r = 0; r < t.rows; ++r) {
    const T* from = rows_of<T>(t.p.query, t.p.query_starts, t.sequence.query_start, t.batch, t.head(r)) +
        t.query(r) * t.p.query.row;
    for_vectors(t.p.head_dim, [&](int64_t e, int count) { store(to + r * width + e, load_up_to(from + e, count)); });
  }
}

struct Plain {
  template <class T>
  static constexpr bool kFits = true;
  static constexpr int kDegree = 7;
  using Query = float;
  using Weight = float;
  static MUDNN_INLINE int64_t query_width(int64_t dim) { return round_up(dim, Vec::kLanes); }
  template <class T>
  static void copy(const Task& t, float* to) {
    copy_query<T>(t, to);
  }
  template <int Rows, class T>
  static void score(
      const Task& t, const Reader<T>& keys, const float* q, float* scores, int64_t stride, int64_t begin, int64_t end) {
    score_rows<Rows>(t, keys, q, scores, stride, begin, end);
  }
  template <int Rows, class T>
  static void weigh(
      const Task& t, const Reader<T>& values, const float* weights, int64_t stride, float* sums, int64_t begin,
      int64_t end) {
    weigh_rows<Rows>(t, values, weights, stride, sums, begin, end);
  }
  static MUDNN_INLINE void store_weight(float* to, int64_t i, Vec v) { store(to + i, v); }
};

#if MUDNN_LEVEL == 2
/// Sums of each of 16 vectors: lane 4 r + s of the result is that of x[r][s].
template <int Rows>
MUDNN_INLINE __m512 add_across(const Vec (&x)[Rows][kStreams]) {
  __m512 four[4];
#pragma GCC unroll 4
  for (int r = 0; r < 4; ++r) {
    const Vec(&y)[kStreams] = x[r < Rows ? r : 0];
    const __m512 a = _mm512_add_ps(_mm512_unpacklo_ps(y[0].v, y[1].v), _mm512_unpackhi_ps(y[0].v, y[1].v));
    const __m512 b = _mm512_add_ps(_mm512_unpacklo_ps(y[2].v, y[3].v), _mm512_unpackhi_ps(y[2].v, y[3].v));
    const __m512d low = _mm512_unpacklo_pd(_mm512_castps_pd(a), _mm512_castps_pd(b));
    const __m512d high = _mm512_unpackhi_pd(_mm512_castps_pd(a), _mm512_castps_pd(b));
    four[r] = _mm512_add_ps(_mm512_castpd_ps(low), _mm512_castpd_ps(high));
  }
  const auto halves = [](__m512 a, __m512 b) {
    return _mm512_add_ps(_mm512_shuffle_f32x4(a, b, 0x88), _mm512_shuffle_f32x4(a, b, 0xdd));
  };
  return halves(halves(four[0], four[1]), halves(four[2], four[3]));
}

/// bfloat16 where the CPU multiplies pairs of them: queries and weights are rounded to it as well.
struct Paired {
  static constexpr int kDegree = 4;
  using Query = Bfloat16;
  using Weight = Bfloat16;
  static MUDNN_INLINE int64_t query_width(int64_t dim) { return round_up(dim, 32); }
  static MUDNN_INLINE __m512bh read(const Bfloat16* p, __mmask32 mask) {
    return reinterpret_cast<__m512bh>(_mm512_maskz_loadu_epi16(mask, p));
  }
  template <class T>
  static void copy(const Task& t, Bfloat16* to) {
    const int64_t width = query_width(t.p.head_dim);
    for (int64_t r = 0; r < t.rows; ++r) {
      const T* from = rows_of<T>(t.p.query, t.p.query_starts, t.sequence.query_start, t.batch, t.head(r)) +
          t.query(r) * t.p.query.row;
      memset(to + r * width + width - 32, 0, 64);
      memcpy(to + r * width, from, static_cast<size_t>(t.p.head_dim) * 2);
    }
  }
  template <int Rows, class T>
  static void score(
      const Task& t, const Reader<T>& keys, const Bfloat16* q, float* scores, int64_t stride, int64_t begin,
      int64_t end) {
    const int64_t width = query_width(t.p.head_dim);
    const int64_t last = width - 32;
    const __mmask32 mask = ~__mmask32{0} >> (width - t.p.head_dim);
    for (int64_t i = begin; i < end; ++i) {
      const Bfloat16* k[kStreams];
      Vec sums[Rows][kStreams];
      begin_keys(t, keys, i, k, sums);
      const auto step = [&](int64_t e, __mmask32 live) {
        __m512bh key[kStreams];
#pragma GCC unroll 4
        for (int s = 0; s < kStreams; ++s) {
          key[s] = read(k[s] + e, live);
        }
#pragma GCC unroll 4
        for (int r = 0; r < Rows; ++r) {
          const __m512bh query = reinterpret_cast<__m512bh>(_mm512_loadu_si512(q + r * width + e));
#pragma GCC unroll 4
          for (int s = 0; s < kStreams; ++s) {
            sums[r][s].v = _mm512_dpbf16_ps(sums[r][s].v, query, key[s]);
          }
        }
      };
      for (int64_t e = 0; e < last; e += 32) {
        step(e, ~__mmask32{0});
      }
      step(last, mask);
      const __m512 all = add_across<Rows>(sums);
#pragma GCC unroll 4
      for (int r = 0; r < Rows; ++r) {
        const __m128 four = r == 0 ? _mm512_castps512_ps128(all)
            : r == 1               ? _mm512_extractf32x4_ps(all, 1)
            : r == 2               ? _mm512_extractf32x4_ps(all, 2)
                                   : _mm512_extractf32x4_ps(all, 3);
        _mm_storeu_ps(scores + r * stride + i * kStreams, four);
      }
    }
  }
  template <int Rows, class T>
  static void weigh(
      const Task& t, const Reader<T>& values, const Bfloat16* weights, int64_t stride, float* sums, int64_t begin,
      int64_t end) {
    const int64_t width = round_up(t.p.value_dim, Vec::kLanes);
    for (int64_t c = 0; c < t.p.value_dim; c += 64) {
      const auto mask = [&](int64_t from) {
        const int64_t left = t.p.value_dim - c - from;
        return left >= 32 ? ~__mmask32{0} : left <= 0 ? __mmask32{0} : (__mmask32{1} << left) - 1;
      };
      const __mmask32 masks[2] = {mask(0), mask(32)};
      // Unpacking takes 64 bits of each quarter of a vector: column 8 q + j (j below 4) of the low, j + 4 of the high.
      __m512 total[Rows][4];
#pragma GCC unroll 4
      for (int r = 0; r < Rows; ++r) {
#pragma GCC unroll 4
        for (int v = 0; v < 4; ++v) {
          total[r][v] = _mm512_setzero_ps();
        }
      }
      for (int64_t i = begin; i < end; ++i) {
#pragma GCC unroll 2
        for (int s = 0; s < kStreams; s += 2) {
          const Bfloat16* first = values(s * t.quarter + i) + c;
          const Bfloat16* second = values((s + 1) * t.quarter + i) + c;
          __m512bh pairs[4];
#pragma GCC unroll 2
          for (int half = 0; half < 2; ++half) {
            const __m512i a = _mm512_maskz_loadu_epi16(masks[half], first + 32 * half);
            const __m512i b = _mm512_maskz_loadu_epi16(masks[half], second + 32 * half);
            pairs[2 * half] = reinterpret_cast<__m512bh>(_mm512_unpacklo_epi16(a, b));
            pairs[2 * half + 1] = reinterpret_cast<__m512bh>(_mm512_unpackhi_epi16(a, b));
          }
#pragma GCC unroll 4
          for (int r = 0; r < Rows; ++r) {
            int pair = 0;
            memcpy(&pair, weights + r * stride + i * kStreams + s, 4);
            const __m512bh weight = reinterpret_cast<__m512bh>(_mm512_set1_epi32(pair));
#pragma GCC unroll 4
            for (int v = 0; v < 4; ++v) {
              total[r][v] = _mm512_dpbf16_ps(total[r][v], weight, pairs[v]);
            }
          }
        }
      }
      const __m512i low = _mm512_setr_epi32(0, 1, 2, 3, 16, 17, 18, 19, 4, 5, 6, 7, 20, 21, 22, 23);
      const __m512i high = _mm512_setr_epi32(8, 9, 10, 11, 24, 25, 26, 27, 12, 13, 14, 15, 28, 29, 30, 31);
#pragma GCC unroll 4
      for (int r = 0; r < Rows; ++r) {
#pragma GCC unroll 2
        for (int half = 0; half < 2; ++half) {
          float* to = sums + r * width + c + 32 * half;
          const __m512 a = total[r][2 * half];
          const __m512 b = total[r][2 * half + 1];
          if (c + 32 * half < width) {
            store(to, load(to) + Vec{_mm512_permutex2var_ps(a, low, b)});
          }
          if (c + 32 * half + 16 < width) {
            store(to + 16, load(to + 16) + Vec{_mm512_permutex2var_ps(a, high, b)});
          }
        }
      }
    }
  }
  static MUDNN_INLINE void store_weight(Bfloat16* to, int64_t i, Vec v) {
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(to + i), reinterpret_cast<__m256i>(_mm512_cvtneps_pbh(v.v)));
  }
};
#endif

}  // namespace
}  // namespace mudnn
