// Few rows times a matrix stored by rows ([N, K], as nn.Linear keeps its weight), without packing: dot products along
// the depth. Four rows of the matrix a quarter of it apart are read at a time: four streams keep memory busier than
// one.
//
// Each product is summed in one order, whatever the number of rows: per lane over the depth, then over the lanes.
#pragma once

#include "mudnn/kernels/gemm_pack.h"

namespace mudnn {
namespace {

constexpr int kDotStreams = 4;
/// Rows of the left operand in registers at a time, and at most in a call.
constexpr int kDotBlock = MUDNN_LEVEL == 2 ? 6 : 2;
constexpr int kDotRows = 32;
/// How far ahead the matrix is fetched into the second cache, in numbers.
constexpr int64_t kDotAhead = 1024;

/// Numbers in one step along the depth.
template <class T>
constexpr int kDotStep = Vec::kLanes * Packing<T>::kDepth;
/// Depth that is summed at a time, before it is added to what was summed before (long chains of additions lose digits;
/// narrow vectors have longer ones) and before the next block of rows takes its turn at the same part of the matrix.
template <class T>
constexpr int64_t kDotDepth = kDotStep<T> * (MUDNN_LEVEL == 2 ? 32 : 16);

template <class T>
MUDNN_INLINE Vec dot_load(const T* p) {
  return load(p);
}
template <class T>
MUDNN_INLINE Vec dot_load_part(const T* p, int numbers) {
  return load_part(p, numbers);
}
template <class T>
MUDNN_INLINE Vec dot_step(Vec a, Vec b, Vec sum, const T*) {
  return fma(a, b, sum);
}
#if MUDNN_LEVEL == 2
MUDNN_INLINE Vec dot_load(const Bfloat16* p) { return {_mm512_castsi512_ps(_mm512_loadu_si512(p))}; }
MUDNN_INLINE Vec dot_load_part(const Bfloat16* p, int numbers) {
  return {_mm512_castsi512_ps(_mm512_maskz_loadu_epi16((1u << numbers) - 1u, p))};
}
MUDNN_INLINE Vec dot_step(Vec a, Vec b, Vec sum, const Bfloat16*) {
  return {_mm512_dpbf16_ps(sum.v, reinterpret_cast<__m512bh>(a.v), reinterpret_cast<__m512bh>(b.v))};
}
#endif

/// The sums of the lanes of four vectors.
MUDNN_INLINE void reduce_four(const Vec (&v)[4], float* out) {
#if MUDNN_LEVEL == 2
  const __m512 ab = _mm512_add_ps(_mm512_unpacklo_ps(v[0].v, v[1].v), _mm512_unpackhi_ps(v[0].v, v[1].v));
  const __m512 cd = _mm512_add_ps(_mm512_unpacklo_ps(v[2].v, v[3].v), _mm512_unpackhi_ps(v[2].v, v[3].v));
  const __m512 quarters = _mm512_add_ps(_mm512_shuffle_ps(ab, cd, 0x44), _mm512_shuffle_ps(ab, cd, 0xee));
  const __m256 halves = _mm256_add_ps(_mm512_castps512_ps256(quarters), _mm512_extractf32x8_ps(quarters, 1));
  _mm_storeu_ps(out, _mm_add_ps(_mm256_castps256_ps128(halves), _mm256_extractf128_ps(halves, 1)));
#else
  for (int i = 0; i < 4; ++i) {
    out[i] = reduce_add(v[i]);
  }
#endif
}

/// sums[row * 4 + stream] (+)= lane-wise products over `depth` numbers, kRows rows at `left` and the four rows at
/// `right`. `ahead`: how far ahead of it the matrix is fetched, in numbers; 0: not.
template <int kRows, class T>
MUDNN_INLINE void dot_block(
    const T* left, int64_t left_stride, const T* const (&right)[kDotStreams], int64_t depth, Vec* sums, bool add,
    int64_t ahead) {
  Vec sum[kRows][kDotStreams];
#pragma GCC unroll 8
  for (int i = 0; i < kRows; ++i) {
#pragma GCC unroll 4
    for (int j = 0; j < kDotStreams; ++j) {
      sum[i][j] = zero();
    }
  }
  const T* b0 = right[0];
  const T* b1 = right[1];
  const T* b2 = right[2];
  const T* b3 = right[3];
  int64_t k = 0;
  for (; k + kDotStep<T> <= depth; k += kDotStep<T>) {
    const Vec b[kDotStreams] = {dot_load(b0 + k), dot_load(b1 + k), dot_load(b2 + k), dot_load(b3 + k)};
    if (ahead != 0) {
      // Every other line: its neighbour comes along, and requests cost places in the queue of misses.
      const bool odd = (k & kDotStep<T>) != 0;
      __builtin_prefetch((odd ? b0 : b2) + k + ahead, 0, 2);
      __builtin_prefetch((odd ? b1 : b3) + k + ahead, 0, 2);
    }
#pragma GCC unroll 8
    for (int i = 0; i < kRows; ++i) {
      const Vec a = dot_load(left + i * left_stride + k);
#pragma GCC unroll 4
      for (int j = 0; j < kDotStreams; ++j) {
        sum[i][j] = dot_step(a, b[j], sum[i][j], left);
      }
    }
  }
  if (k < depth) {
    const int rest = static_cast<int>(depth - k);
    const Vec b[kDotStreams] = {
        dot_load_part(b0 + k, rest), dot_load_part(b1 + k, rest), dot_load_part(b2 + k, rest),
        dot_load_part(b3 + k, rest)};
#pragma GCC unroll 8
    for (int i = 0; i < kRows; ++i) {
      const Vec a = dot_load_part(left + i * left_stride + k, rest);
#pragma GCC unroll 4
      for (int j = 0; j < kDotStreams; ++j) {
        sum[i][j] = dot_step(a, b[j], sum[i][j], left);
      }
    }
  }
#pragma GCC unroll 8
  for (int i = 0; i < kRows; ++i) {
#pragma GCC unroll 4
    for (int j = 0; j < kDotStreams; ++j) {
      Vec& total = sums[i * kDotStreams + j];
      total = add ? total + sum[i][j] : sum[i][j];
    }
  }
}

template <class T>
MUDNN_INLINE void dot_block_of(
    int rows, const T* left, int64_t left_stride, const T* const (&right)[kDotStreams], int64_t depth, Vec* sums,
    bool add, int64_t ahead) {
  switch (rows) {
#define MUDNN_ROWS(n)                                                \
  case n:                                                            \
    dot_block<n>(left, left_stride, right, depth, sums, add, ahead); \
    break;
#if MUDNN_LEVEL == 2
    MUDNN_ROWS(6)
    MUDNN_ROWS(5)
    MUDNN_ROWS(4)
    MUDNN_ROWS(3)
#endif
    MUDNN_ROWS(2)
    MUDNN_ROWS(1)
#undef MUDNN_ROWS
  }
}

/// out[row * out_stride + stream] = dot(row of left, right[stream]) for `rows` (1 .. kDotRows) rows at `left`, whose
/// depth is contiguous, and four rows of `depth` numbers at `right`.
template <class T>
__attribute__((noinline)) void dot_rows(
    const T* left, int64_t left_stride, int rows, const T* const (&right)[kDotStreams], int64_t depth, float* out,
    int64_t out_stride) {
  Vec sums[kDotRows * kDotStreams];
  const int blocks = (rows + kDotBlock - 1) / kDotBlock;
  int64_t k = 0;
  do {
    const int64_t part = depth - k < kDotDepth<T> ? depth - k : kDotDepth<T>;
    const T* const at[kDotStreams] = {right[0] + k, right[1] + k, right[2] + k, right[3] + k};
    // Blocks of nearly equal size: 16 rows as 6, 5, 5.
    for (int block = 0, row = 0; block < blocks; ++block) {
      const int here = (rows - row) / (blocks - block) + ((rows - row) % (blocks - block) != 0);
      dot_block_of(
          here, left + row * left_stride + k, left_stride, at, part, sums + row * kDotStreams, k > 0,
          block == 0 ? kDotAhead : 0);
      row += here;
    }
    k += part;
  } while (k < depth);
  for (int row = 0; row < rows; ++row) {
    const Vec* s = sums + row * kDotStreams;
    const Vec four[4] = {s[0], s[1], s[2], s[3]};
    reduce_four(four, out + row * out_stride);
  }
}

}  // namespace
}  // namespace mudnn
