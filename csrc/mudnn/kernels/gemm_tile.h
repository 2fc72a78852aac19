// Products of packed panels: a tile of the result stays in registers over the whole depth.
#pragma once

#include "mudnn/kernels/gemm_pack.h"

namespace mudnn {
namespace {

/// A tile has up to kTileRows rows of two vectors: as many accumulators as leave registers for the operands.
#if MUDNN_LEVEL == 2
constexpr int kTileRows = 14;
#else
constexpr int kTileRows = 6;
#endif
constexpr int kTileColumns = 2 * Vec::kLanes;

/// Depth that is summed in registers before it is added to what is there: fixed, as the sum depends on it, and short,
/// as long chains of additions lose digits (more so where multiply and add round separately). In 16 bits it
/// matters less: the result is rounded to them.
template <class T>
constexpr int64_t kTileDepth = Packing<T>::kDepth == 2 ? 768
    : MUDNN_LEVEL == 0                                 ? 64
                                                       : 128;

MUDNN_INLINE Vec broadcast_unit(const float* p) { return splat(*p); }
MUDNN_INLINE Vec load_unit(const float* p) { return load(p); }
MUDNN_INLINE Vec multiply_unit(Vec a, Vec b, Vec sum, const float*) { return fma(a, b, sum); }
#if MUDNN_LEVEL == 2
MUDNN_INLINE Vec broadcast_unit(const uint32_t* p) {
  return {_mm512_castsi512_ps(_mm512_set1_epi32(static_cast<int>(*p)))};
}
MUDNN_INLINE Vec load_unit(const uint32_t* p) { return {_mm512_castsi512_ps(_mm512_loadu_si512(p))}; }
MUDNN_INLINE Vec multiply_unit(Vec a, Vec b, Vec sum, const uint32_t*) {
  return {_mm512_dpbf16_ps(sum.v, reinterpret_cast<__m512bh>(a.v), reinterpret_cast<__m512bh>(b.v))};
}
#endif

/// Memory that will be packed next, fetched into the second cache during a product: of each 16 units of depth one cache
/// line at data + i * step for i = 0 .. 15, then on by group_step.
struct Fetch {
  static constexpr int64_t kGroup = 16;
  const char* data;
  int64_t step;
  int64_t group_step;
};

/// tile[row * kTileColumns + column] (+)= sum over p of left(p, row) * right(p, column): `left` is a panel of width
/// kRows, `right` one of width kTileColumns, `units` their depth in units.
template <int kRows, class Unit>
__attribute__((noinline)) void multiply_panels(
    const Unit* left, const Unit* right, int64_t units, float* tile, bool add, Fetch fetch) {
  Vec sum[kRows][2];
#pragma GCC unroll 16
  for (int i = 0; i < kRows; ++i) {
    sum[i][0] = zero();
    sum[i][1] = zero();
  }
  if (add) {
    // A large block's sums lie beyond the second cache.
    for (int i = 0; i < kRows; ++i) {
      __builtin_prefetch(tile + i * kTileColumns, 1, 2);
      __builtin_prefetch(tile + i * kTileColumns + Vec::kLanes, 1, 2);
    }
  }
  for (int64_t begin = 0; begin < units; begin += Fetch::kGroup) {
    const int64_t end = begin + Fetch::kGroup < units ? begin + Fetch::kGroup : units;
    const char* ahead = fetch.data;
    for (int64_t p = begin; p < end; ++p) {
      const Vec b0 = load_unit(right);
      const Vec b1 = load_unit(right + Vec::kLanes);
      __builtin_prefetch(ahead, 0, 2);
      ahead += fetch.step;
#pragma GCC unroll 16
      for (int i = 0; i < kRows; ++i) {
        const Vec a = broadcast_unit(left + i);
        sum[i][0] = multiply_unit(a, b0, sum[i][0], left);
        sum[i][1] = multiply_unit(a, b1, sum[i][1], left);
      }
      left += kRows;
      right += kTileColumns;
    }
    fetch.data += fetch.group_step;
  }
#pragma GCC unroll 16
  for (int i = 0; i < kRows; ++i) {
    float* to = tile + i * kTileColumns;
    if (add) {
      sum[i][0] = sum[i][0] + load(to);
      sum[i][1] = sum[i][1] + load(to + Vec::kLanes);
    }
    store(to, sum[i][0]);
    store(to + Vec::kLanes, sum[i][1]);
  }
}

/// multiply_panels for a number of rows 1 .. kTileRows known at run time.
template <class Unit>
MUDNN_INLINE void multiply_panels(
    int rows, const Unit* left, const Unit* right, int64_t units, float* tile, bool add, const Fetch& fetch) {
  switch (rows) {
#define MUDNN_ROWS(n)                                         \
  case n:                                                     \
    multiply_panels<n>(left, right, units, tile, add, fetch); \
    break;
#if MUDNN_LEVEL == 2
    MUDNN_ROWS(14)
    MUDNN_ROWS(13)
    MUDNN_ROWS(12)
    MUDNN_ROWS(11)
    MUDNN_ROWS(10)
    MUDNN_ROWS(9)
    MUDNN_ROWS(8)
    MUDNN_ROWS(7)
#endif
    MUDNN_ROWS(6)
    MUDNN_ROWS(5)
    MUDNN_ROWS(4)
    MUDNN_ROWS(3)
    MUDNN_ROWS(2)
    MUDNN_ROWS(1)
#undef MUDNN_ROWS
  }
}

}  // namespace
}  // namespace mudnn
