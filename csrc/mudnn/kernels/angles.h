// Rotary position embedding's factors of a token.
#pragma once

#include "mudnn/kernels/vec.h"

namespace mudnn {
namespace {

/// The two numbers of each pair of lanes exchanged.
MUDNN_INLINE Vec swapped_pairs(Vec a) {
#if MUDNN_LEVEL == 2
  return {_mm512_permute_ps(a.v, 0xB1)};
#elif MUDNN_LEVEL == 1
  return {_mm256_permute_ps(a.v, 0xB1)};
#else
  return {Float4{a.v[1], a.v[0], a.v[3], a.v[2]}};
#endif
}

/// What a token's heads are multiplied by, one number for each rotated element: itself by cos, its partner by sin,
/// which has the sign of the term.
struct Angles {
  float* cos;
  float* sin;
};

template <class A>
MUDNN_INLINE void widen(const A* from, int64_t n, float* to, bool negate) {
  const Vec sign = splat(negate ? -1.0f : 1.0f);
  for_vectors(n, [&](int64_t i, int count) { store_up_to(to + i, load_up_to(from + i, count) * sign, count); });
}

/// Fills `angles` for `half` pairs from a row of cosines and one of sines. whole: rows of a number for each element,
/// else for each pair.
template <class A>
MUDNN_INLINE void load_angles(const A* cos, const A* sin, int64_t half, bool interleaved, bool whole, Angles angles) {
  if (!interleaved) {
    const int64_t second = whole ? half : 0;
    widen(cos, half, angles.cos, false);
    widen(cos + second, half, angles.cos + half, false);
    widen(sin, half, angles.sin, true);
    widen(sin + second, half, angles.sin + half, false);
    return;
  }
  const int64_t step = whole ? 2 : 1;
  for (int64_t pair = 0; pair < half; ++pair) {
    const A* c = cos + pair * step;
    const A* s = sin + pair * step;
    store_part(angles.cos + 2 * pair, load_part(c, 1), 1);
    store_part(angles.cos + 2 * pair + 1, load_part(c + step - 1, 1), 1);
    store_part(angles.sin + 2 * pair, zero() - load_part(s, 1), 1);
    store_part(angles.sin + 2 * pair + 1, load_part(s + step - 1, 1), 1);
  }
}

}  // namespace
}  // namespace mudnn
