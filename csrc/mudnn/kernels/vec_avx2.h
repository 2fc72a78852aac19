// vec.h at AVX2 with FMA and F16C. Included by vec.h only.
#pragma once

#include <immintrin.h>

namespace mudnn {
namespace {

struct Vec {
  static constexpr int kLanes = 8;
  __m256 v;
};
struct Mask {
  __m256 v;
};

MUDNN_INLINE __m256i first_lanes(int n) {
  return _mm256_cmpgt_epi32(_mm256_set1_epi32(n), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
}

MUDNN_INLINE Vec splat(float x) { return {_mm256_set1_ps(x)}; }
MUDNN_INLINE Vec zero() { return {_mm256_setzero_ps()}; }

MUDNN_INLINE Vec widen_bf16(__m128i bits) {
  return {_mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(bits), 16))};
}
MUDNN_INLINE __m128i narrow_bf16(__m256 v) {
  const __m256i bits = _mm256_castps_si256(v);
  const __m256i odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
  const __m256i rounded =
      _mm256_srli_epi32(_mm256_add_epi32(bits, _mm256_add_epi32(odd, _mm256_set1_epi32(0x7fff))), 16);
  const __m256i nan = _mm256_castps_si256(_mm256_cmp_ps(v, v, _CMP_UNORD_Q));
  const __m256i chosen = _mm256_blendv_epi8(rounded, _mm256_set1_epi32(0x7fc0), nan);
  return _mm_packus_epi32(_mm256_castsi256_si128(chosen), _mm256_extracti128_si256(chosen, 1));
}
MUDNN_INLINE __m128i load_half(const void* p) { return _mm_loadu_si128(static_cast<const __m128i*>(p)); }
MUDNN_INLINE __m128i load_half_part(const void* p, int n) {
  __m128i bits = _mm_setzero_si128();
  memcpy(&bits, p, static_cast<size_t>(n) * 2);
  return bits;
}

MUDNN_INLINE Vec load(const float* p) { return {_mm256_loadu_ps(p)}; }
MUDNN_INLINE Vec load(const Bfloat16* p) { return widen_bf16(load_half(p)); }
MUDNN_INLINE Vec load(const Float16* p) { return {_mm256_cvtph_ps(load_half(p))}; }
MUDNN_INLINE Vec load_part(const float* p, int n) { return {_mm256_maskload_ps(p, first_lanes(n))}; }
MUDNN_INLINE Vec load_part(const Bfloat16* p, int n) { return widen_bf16(load_half_part(p, n)); }
MUDNN_INLINE Vec load_part(const Float16* p, int n) { return {_mm256_cvtph_ps(load_half_part(p, n))}; }

MUDNN_INLINE __m128i narrow_fp16(__m256 v) { return _mm256_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT); }
MUDNN_INLINE void store(float* p, Vec a) { _mm256_storeu_ps(p, a.v); }
MUDNN_INLINE void store(Bfloat16* p, Vec a) { _mm_storeu_si128(reinterpret_cast<__m128i*>(p), narrow_bf16(a.v)); }
MUDNN_INLINE void store(Float16* p, Vec a) { _mm_storeu_si128(reinterpret_cast<__m128i*>(p), narrow_fp16(a.v)); }
MUDNN_INLINE void store_part(float* p, Vec a, int n) { _mm256_maskstore_ps(p, first_lanes(n), a.v); }
MUDNN_INLINE void store_part(Bfloat16* p, Vec a, int n) {
  const __m128i bits = narrow_bf16(a.v);
  memcpy(p, &bits, static_cast<size_t>(n) * 2);
}
MUDNN_INLINE void store_part(Float16* p, Vec a, int n) {
  const __m128i bits = narrow_fp16(a.v);
  memcpy(p, &bits, static_cast<size_t>(n) * 2);
}

MUDNN_INLINE Vec operator+(Vec a, Vec b) { return {_mm256_add_ps(a.v, b.v)}; }
MUDNN_INLINE Vec operator-(Vec a, Vec b) { return {_mm256_sub_ps(a.v, b.v)}; }
MUDNN_INLINE Vec operator*(Vec a, Vec b) { return {_mm256_mul_ps(a.v, b.v)}; }
MUDNN_INLINE Vec operator/(Vec a, Vec b) { return {_mm256_div_ps(a.v, b.v)}; }
MUDNN_INLINE Vec fma(Vec a, Vec b, Vec c) { return {_mm256_fmadd_ps(a.v, b.v, c.v)}; }
MUDNN_INLINE Vec max(Vec a, Vec b) { return {_mm256_max_ps(a.v, b.v)}; }
MUDNN_INLINE Vec min(Vec a, Vec b) { return {_mm256_min_ps(a.v, b.v)}; }
MUDNN_INLINE Vec sqrt(Vec a) { return {_mm256_sqrt_ps(a.v)}; }
MUDNN_INLINE Vec abs(Vec a) { return {_mm256_andnot_ps(_mm256_set1_ps(-0.0f), a.v)}; }

MUDNN_INLINE Mask less(Vec a, Vec b) { return {_mm256_cmp_ps(a.v, b.v, _CMP_LT_OQ)}; }
MUDNN_INLINE Vec select(Mask mask, Vec if_true, Vec if_false) {
  return {_mm256_blendv_ps(if_false.v, if_true.v, mask.v)};
}

MUDNN_INLINE Vec round(Vec a) { return {_mm256_round_ps(a.v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC)}; }
// In two factors, so that subnormal results and the largest ones come out right. |n| below 252.
MUDNN_INLINE Vec scale_by_power(Vec a, Vec n) {
  const __m256i whole = _mm256_cvtps_epi32(n.v);
  const __m256i half = _mm256_srai_epi32(whole, 1);
  const __m256i rest = _mm256_sub_epi32(whole, half);
  const auto power = [](__m256i e) {
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_add_epi32(e, _mm256_set1_epi32(127)), 23));
  };
  return {_mm256_mul_ps(_mm256_mul_ps(a.v, power(half)), power(rest))};
}

MUDNN_INLINE float reduce_add(Vec a) {
  const __m128 four = _mm_add_ps(_mm256_castps256_ps128(a.v), _mm256_extractf128_ps(a.v, 1));
  const __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)));
}
MUDNN_INLINE float reduce_max(Vec a) {
  const __m128 four = _mm_max_ps(_mm256_castps256_ps128(a.v), _mm256_extractf128_ps(a.v, 1));
  const __m128 two = _mm_max_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_max_ss(two, _mm_movehdup_ps(two)));
}

}  // namespace
}  // namespace mudnn
