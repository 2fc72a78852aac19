// Functions on Vec, the same at each level. Included by vec.h only.
#pragma once

namespace mudnn {
namespace {

/// e^x: x = n ln 2 + r with |r| <= ln 2 / 2 (ln 2 in two parts, so that r is exact), Taylor's series of e^r to r^7,
/// whose remainder is 6e-9. 0 below -104, infinite above 89.
MUDNN_INLINE Vec exp(Vec x) {
  x = min(splat(89.0f), max(splat(-104.0f), x));
  const Vec n = round(x * splat(1.44269504f));
  Vec r = fma(n, splat(-0.693359375f), x);
  r = fma(n, splat(2.12194440e-4f), r);
  Vec p = splat(1.0f / 5040);
  p = fma(p, r, splat(1.0f / 720));
  p = fma(p, r, splat(1.0f / 120));
  p = fma(p, r, splat(1.0f / 24));
  p = fma(p, r, splat(1.0f / 6));
  p = fma(p, r, splat(0.5f));
  p = fma(p, r, splat(1.0f));
  p = fma(p, r, splat(1.0f));
  return scale_by_power(p, n);
}

/// 1 / (1 + e^-x).
MUDNN_INLINE Vec sigmoid(Vec x) { return splat(1.0f) / (splat(1.0f) + exp(zero() - x)); }

}  // namespace
}  // namespace mudnn
