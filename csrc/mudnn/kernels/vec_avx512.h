// vec.h at AVX-512. Included by vec.h only.
#pragma once

#include <immintrin.h>

namespace mudnn {
namespace {

struct Vec {
  static constexpr int kLanes = 16;
  __m512 v;
};
using Mask = __mmask16;

MUDNN_INLINE __mmask16 first_lanes(int n) { return static_cast<__mmask16>((1u << n) - 1u); }

MUDNN_INLINE Vec splat(float x) { return {_mm512_set1_ps(x)}; }
MUDNN_INLINE Vec zero() { return {_mm512_setzero_ps()}; }

MUDNN_INLINE Vec widen_bf16(__m256i bits) {
  return {_mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(bits), 16))};
}
// The instruction for it flushes subnormal numbers; with one of these among them, by integer arithmetic.
MUDNN_INLINE __m256i narrow_bf16(__m512 v) {
  constexpr int kSubnormal = 0x20;
  if (__builtin_expect(_mm512_fpclass_ps_mask(v, kSubnormal) == 0, 1)) {
    return reinterpret_cast<__m256i>(_mm512_cvtneps_pbh(v));
  }
  const __m512i bits = _mm512_castps_si512(v);
  const __m512i odd = _mm512_and_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(1));
  const __m512i rounded = _mm512_add_epi32(bits, _mm512_add_epi32(odd, _mm512_set1_epi32(0x7fff)));
  const __mmask16 nan = _mm512_cmp_ps_mask(v, v, _CMP_UNORD_Q);
  return _mm512_cvtepi32_epi16(_mm512_mask_mov_epi32(_mm512_srli_epi32(rounded, 16), nan, _mm512_set1_epi32(0x7fc0)));
}

MUDNN_INLINE Vec load(const float* p) { return {_mm512_loadu_ps(p)}; }
MUDNN_INLINE Vec load(const Bfloat16* p) { return widen_bf16(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p))); }
MUDNN_INLINE Vec load(const Float16* p) {
  return {_mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)))};
}
MUDNN_INLINE Vec load_part(const float* p, int n) { return {_mm512_maskz_loadu_ps(first_lanes(n), p)}; }
MUDNN_INLINE Vec load_part(const Bfloat16* p, int n) { return widen_bf16(_mm256_maskz_loadu_epi16(first_lanes(n), p)); }
MUDNN_INLINE Vec load_part(const Float16* p, int n) {
  return {_mm512_cvtph_ps(_mm256_maskz_loadu_epi16(first_lanes(n), p))};
}

MUDNN_INLINE void store(float* p, Vec a) { _mm512_storeu_ps(p, a.v); }
MUDNN_INLINE void store(Bfloat16* p, Vec a) { _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), narrow_bf16(a.v)); }
MUDNN_INLINE void store(Float16* p, Vec a) {
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), _mm512_cvtps_ph(a.v, _MM_FROUND_TO_NEAREST_INT));
}
MUDNN_INLINE void store_part(float* p, Vec a, int n) { _mm512_mask_storeu_ps(p, first_lanes(n), a.v); }
MUDNN_INLINE void store_part(Bfloat16* p, Vec a, int n) {
  _mm256_mask_storeu_epi16(p, first_lanes(n), narrow_bf16(a.v));
}
MUDNN_INLINE void store_part(Float16* p, Vec a, int n) {
  _mm256_mask_storeu_epi16(p, first_lanes(n), _mm512_cvtps_ph(a.v, _MM_FROUND_TO_NEAREST_INT));
}

MUDNN_INLINE Vec operator+(Vec a, Vec b) { return {_mm512_add_ps(a.v, b.v)}; }
MUDNN_INLINE Vec operator-(Vec a, Vec b) { return {_mm512_sub_ps(a.v, b.v)}; }
MUDNN_INLINE Vec operator*(Vec a, Vec b) { return {_mm512_mul_ps(a.v, b.v)}; }
MUDNN_INLINE Vec operator/(Vec a, Vec b) { return {_mm512_div_ps(a.v, b.v)}; }
MUDNN_INLINE Vec fma(Vec a, Vec b, Vec c) { return {_mm512_fmadd_ps(a.v, b.v, c.v)}; }
MUDNN_INLINE Vec max(Vec a, Vec b) { return {_mm512_max_ps(a.v, b.v)}; }
MUDNN_INLINE Vec min(Vec a, Vec b) { return {_mm512_min_ps(a.v, b.v)}; }
MUDNN_INLINE Vec sqrt(Vec a) { return {_mm512_sqrt_ps(a.v)}; }
MUDNN_INLINE Vec abs(Vec a) { return {_mm512_abs_ps(a.v)}; }

MUDNN_INLINE Mask less(Vec a, Vec b) { return _mm512_cmp_ps_mask(a.v, b.v, _CMP_LT_OQ); }
MUDNN_INLINE Vec select(Mask mask, Vec if_true, Vec if_false) {
  return {_mm512_mask_blend_ps(mask, if_false.v, if_true.v)};
}

/// Nearest integer, and a * 2^n for an integral n.
MUDNN_INLINE Vec round(Vec a) { return {_mm512_roundscale_ps(a.v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC)}; }
MUDNN_INLINE Vec scale_by_power(Vec a, Vec n) { return {_mm512_scalef_ps(a.v, n.v)}; }

MUDNN_INLINE float reduce_add(Vec a) { return _mm512_reduce_add_ps(a.v); }
MUDNN_INLINE float reduce_max(Vec a) { return _mm512_reduce_max_ps(a.v); }

}  // namespace
}  // namespace mudnn
