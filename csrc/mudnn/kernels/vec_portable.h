// vec.h for any CPU, in the compiler's vector extension. Included by vec.h only.
#pragma once

namespace mudnn {
namespace {

typedef float Float4 __attribute__((vector_size(16)));
typedef int32_t Int4 __attribute__((vector_size(16)));
typedef uint32_t Uint4 __attribute__((vector_size(16)));
typedef uint16_t Half4 __attribute__((vector_size(8)));

struct Vec {
  static constexpr int kLanes = 4;
  Float4 v;
};
struct Mask {
  Int4 v;
};

MUDNN_INLINE Vec splat(float x) { return {Float4{x, x, x, x}}; }
MUDNN_INLINE Vec zero() { return splat(0); }

MUDNN_INLINE Vec widen_bf16(Half4 bits) {
  return {reinterpret_cast<Float4>(__builtin_convertvector(bits, Uint4) << 16)};
}
MUDNN_INLINE Half4 narrow_bf16(Float4 v) {
  const Uint4 bits = reinterpret_cast<Uint4>(v);
  const Uint4 rounded = (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
  const Uint4 nan = reinterpret_cast<Uint4>(v != v);
  return __builtin_convertvector((rounded & ~nan) | (nan & 0x7fc0u), Half4);
}

inline float widen_fp16(uint16_t half) {
  const uint32_t sign = static_cast<uint32_t>(half & 0x8000u) << 16;
  uint32_t exponent = (half >> 10) & 0x1fu;
  uint32_t fraction = half & 0x3ffu;
  uint32_t bits = 0;
  if (exponent == 0x1f) {
    bits = 0x7f800000u | (fraction << 13);
  } else if (exponent != 0) {
    bits = ((exponent + 112) << 23) | (fraction << 13);
  } else if (fraction != 0) {
    exponent = 113;
    while ((fraction & 0x400u) == 0) {
      fraction <<= 1;
      --exponent;
    }
    bits = (exponent << 23) | ((fraction & 0x3ffu) << 13);
  }
  bits |= sign;
  float value = 0;
  memcpy(&value, &bits, sizeof value);
  return value;
}

inline uint16_t narrow_fp16(float value) {
  uint32_t bits = 0;
  memcpy(&bits, &value, sizeof bits);
  const uint32_t sign = (bits >> 16) & 0x8000u;
  bits &= 0x7fffffffu;
  if (bits > 0x7f800000u) {
    return static_cast<uint16_t>(sign | 0x7e00u);
  }
  if (bits >= 0x477ff000u) {  // rounds to 65536 or more
    return static_cast<uint16_t>(sign | 0x7c00u);
  }
  if (bits < 0x38800000u) {  // subnormal: the addition does the rounding
    float small = 0;
    memcpy(&small, &bits, sizeof small);
    small += 0.5f;
    memcpy(&bits, &small, sizeof bits);
    return static_cast<uint16_t>(sign | (bits - 0x3f000000u));
  }
  bits += 0xfffu + ((bits >> 13) & 1u) - (112u << 23);
  return static_cast<uint16_t>(sign | (bits >> 13));
}

template <class V, class T>
MUDNN_INLINE V read(const T* p, int n) {
  V bits{};
  memcpy(&bits, p, static_cast<size_t>(n) * sizeof(T));
  return bits;
}
MUDNN_INLINE Vec widen_fp16(Half4 bits) {
  return {Float4{widen_fp16(bits[0]), widen_fp16(bits[1]), widen_fp16(bits[2]), widen_fp16(bits[3])}};
}
MUDNN_INLINE Half4 narrow_fp16(Float4 v) {
  return Half4{narrow_fp16(v[0]), narrow_fp16(v[1]), narrow_fp16(v[2]), narrow_fp16(v[3])};
}

MUDNN_INLINE Vec load_part(const float* p, int n) { return {read<Float4>(p, n)}; }
MUDNN_INLINE Vec load_part(const Bfloat16* p, int n) { return widen_bf16(read<Half4>(p, n)); }
MUDNN_INLINE Vec load_part(const Float16* p, int n) { return widen_fp16(read<Half4>(p, n)); }
template <class T>
MUDNN_INLINE Vec load(const T* p) {
  return load_part(p, Vec::kLanes);
}

MUDNN_INLINE void store_part(float* p, Vec a, int n) { memcpy(p, &a.v, static_cast<size_t>(n) * 4); }
MUDNN_INLINE void store_part(Bfloat16* p, Vec a, int n) {
  const Half4 bits = narrow_bf16(a.v);
  memcpy(p, &bits, static_cast<size_t>(n) * 2);
}
MUDNN_INLINE void store_part(Float16* p, Vec a, int n) {
  const Half4 bits = narrow_fp16(a.v);
  memcpy(p, &bits, static_cast<size_t>(n) * 2);
}
template <class T>
MUDNN_INLINE void store(T* p, Vec a) {
  store_part(p, a, Vec::kLanes);
}

MUDNN_INLINE Vec operator+(Vec a, Vec b) { return {a.v + b.v}; }
MUDNN_INLINE Vec operator-(Vec a, Vec b) { return {a.v - b.v}; }
MUDNN_INLINE Vec operator*(Vec a, Vec b) { return {a.v * b.v}; }
MUDNN_INLINE Vec operator/(Vec a, Vec b) { return {a.v / b.v}; }
MUDNN_INLINE Vec fma(Vec a, Vec b, Vec c) { return {a.v * b.v + c.v}; }
MUDNN_INLINE Vec max(Vec a, Vec b) { return {a.v > b.v ? a.v : b.v}; }
MUDNN_INLINE Vec min(Vec a, Vec b) { return {a.v < b.v ? a.v : b.v}; }
MUDNN_INLINE Vec sqrt(Vec a) {
  return {Float4{__builtin_sqrtf(a.v[0]), __builtin_sqrtf(a.v[1]), __builtin_sqrtf(a.v[2]), __builtin_sqrtf(a.v[3])}};
}
MUDNN_INLINE Vec abs(Vec a) { return {reinterpret_cast<Float4>(reinterpret_cast<Uint4>(a.v) & 0x7fffffffu)}; }

MUDNN_INLINE Mask less(Vec a, Vec b) { return {a.v < b.v}; }
MUDNN_INLINE Vec select(Mask mask, Vec if_true, Vec if_false) { return {mask.v ? if_true.v : if_false.v}; }

// By adding and taking away 1.5 * 2^23, for |a| below 2^22.
MUDNN_INLINE Vec round(Vec a) {
  const Vec big = splat(12582912.0f);
  return (a + big) - big;
}
MUDNN_INLINE Vec scale_by_power(Vec a, Vec n) {
  const Int4 whole = __builtin_convertvector(n.v, Int4);
  const Int4 half = whole >> 1;
  const Int4 rest = whole - half;
  const Float4 one = reinterpret_cast<Float4>((half + 127) << 23);
  const Float4 two = reinterpret_cast<Float4>((rest + 127) << 23);
  return {a.v * one * two};
}

MUDNN_INLINE float reduce_add(Vec a) { return (a.v[0] + a.v[2]) + (a.v[1] + a.v[3]); }
MUDNN_INLINE float reduce_max(Vec a) {
  const float even = a.v[0] > a.v[2] ? a.v[0] : a.v[2];
  const float odd = a.v[1] > a.v[3] ? a.v[1] : a.v[3];
  return even > odd ? even : odd;
}

}  // namespace
}  // namespace mudnn
