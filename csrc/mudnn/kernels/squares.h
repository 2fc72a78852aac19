// The sum of the squares of a row.
#pragma once

#include "mudnn/kernels/reduce.h"

namespace mudnn {
namespace {

template <class T>
MUDNN_INLINE double sum_of_squares(const T* x, int64_t n) {
  return sum_over(n, [&](Vec sum, int64_t i, int count) {
    const Vec v = load_up_to(x + i, count);
    return fma(v, v, sum);
  });
}

#if MUDNN_LEVEL == 2
// Pairs of bfloat16 are multiplied and added up by one instruction. It takes subnormal numbers for 0, whose squares are
// 0 in float32 anyway.
MUDNN_INLINE double sum_of_squares(const Bfloat16* x, int64_t n) {
  constexpr int64_t kPairs = 32;
  const auto step = [&](__m512 sum, int64_t i, __mmask32 lanes) {
    const auto v = reinterpret_cast<__m512bh>(_mm512_maskz_loadu_epi16(lanes, x + i));
    return _mm512_dpbf16_ps(sum, v, v);
  };
  constexpr __mmask32 kAll = ~__mmask32{0};
  double total = 0;
  for (int64_t start = 0; start < n; start += kSumBlock) {
    const int64_t end = start + kSumBlock < n ? start + kSumBlock : n;
    __m512 a = _mm512_setzero_ps(), b = a, c = a, d = a;
    int64_t i = start;
    for (; i + 4 * kPairs <= end; i += 4 * kPairs) {
      a = step(a, i, kAll);
      b = step(b, i + kPairs, kAll);
      c = step(c, i + 2 * kPairs, kAll);
      d = step(d, i + 3 * kPairs, kAll);
    }
    for (; i < end; i += kPairs) {
      a = step(a, i, end - i >= kPairs ? kAll : (__mmask32{1} << (end - i)) - 1);
    }
    total += reduce_add(Vec{_mm512_add_ps(_mm512_add_ps(a, b), _mm512_add_ps(c, d))});
  }
  return total;
}
#endif

}  // namespace
}  // namespace mudnn
