// Comparisons of vectors as bits: bit i is lane i.
#pragma once

#include "mudnn/kernels/vec.h"

namespace mudnn {
namespace {

#if MUDNN_LEVEL == 2
MUDNN_INLINE unsigned lanes_greater(Vec a, Vec b) { return _mm512_cmp_ps_mask(a.v, b.v, _CMP_GT_OQ); }
MUDNN_INLINE unsigned lanes_at_least(Vec a, Vec b) { return _mm512_cmp_ps_mask(a.v, b.v, _CMP_GE_OQ); }
MUDNN_INLINE unsigned lanes_equal(Vec a, Vec b) { return _mm512_cmp_ps_mask(a.v, b.v, _CMP_EQ_OQ); }
MUDNN_INLINE unsigned lanes_nan(Vec a) { return _mm512_cmp_ps_mask(a.v, a.v, _CMP_UNORD_Q); }
#elif MUDNN_LEVEL == 1
MUDNN_INLINE unsigned sign_bits(__m256 v) { return static_cast<unsigned>(_mm256_movemask_ps(v)); }
MUDNN_INLINE unsigned lanes_greater(Vec a, Vec b) { return sign_bits(_mm256_cmp_ps(a.v, b.v, _CMP_GT_OQ)); }
MUDNN_INLINE unsigned lanes_at_least(Vec a, Vec b) { return sign_bits(_mm256_cmp_ps(a.v, b.v, _CMP_GE_OQ)); }
MUDNN_INLINE unsigned lanes_equal(Vec a, Vec b) { return sign_bits(_mm256_cmp_ps(a.v, b.v, _CMP_EQ_OQ)); }
MUDNN_INLINE unsigned lanes_nan(Vec a) { return sign_bits(_mm256_cmp_ps(a.v, a.v, _CMP_UNORD_Q)); }
#else
MUDNN_INLINE unsigned sign_bits(Int4 v) { return (v[0] & 1u) | (v[1] & 2u) | (v[2] & 4u) | (v[3] & 8u); }
MUDNN_INLINE unsigned lanes_greater(Vec a, Vec b) { return sign_bits(a.v > b.v); }
MUDNN_INLINE unsigned lanes_at_least(Vec a, Vec b) { return sign_bits(a.v >= b.v); }
MUDNN_INLINE unsigned lanes_equal(Vec a, Vec b) { return sign_bits(a.v == b.v); }
MUDNN_INLINE unsigned lanes_nan(Vec a) { return sign_bits(a.v != a.v); }
#endif

/// The bits of the first `count` lanes.
MUDNN_INLINE unsigned lanes_below(int count) { return (1u << count) - 1u; }

/// Appends index `first` + i and v[i] for each bit i of `lanes` to ids and values, both with room for a vector beyond.
/// Returns how many these are.
MUDNN_INLINE int append_lanes(unsigned lanes, Vec v, int32_t first, int32_t* ids, float* values) {
#if MUDNN_LEVEL == 2
  // Compressed in registers: compressing into memory is done step by step on some CPUs.
  const __m512i indices = _mm512_add_epi32(
      _mm512_set1_epi32(first), _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15));
  const auto mask = static_cast<__mmask16>(lanes);
  _mm512_storeu_si512(ids, _mm512_maskz_compress_epi32(mask, indices));
  _mm512_storeu_ps(values, _mm512_maskz_compress_ps(mask, v.v));
  return __builtin_popcount(lanes);
#else
  float all[Vec::kLanes];
  store(all, v);
  int count = 0;
  for (; lanes != 0; lanes &= lanes - 1) {
    const int lane = __builtin_ctz(lanes);
    ids[count] = first + lane;
    values[count++] = all[lane];
  }
  return count;
#endif
}

}  // namespace
}  // namespace mudnn
