// Activation functions of a vector. kCoarse: for results of 16 bits, with relative errors below 2^-13.
#pragma once

#include "mudnn/kernels/vec.h"

namespace mudnn {
namespace {

/// numerator / denominator.
template <bool kCoarse>
MUDNN_INLINE Vec quotient(Vec numerator, Vec denominator) {
#if MUDNN_LEVEL == 2
  if constexpr (kCoarse) {
    return {_mm512_mul_ps(numerator.v, _mm512_rcp14_ps(denominator.v))};
  }
#endif
  return numerator / denominator;
}

/// 2^t with a relative error of 4e-6: a polynomial (Chebyshev interpolation) of the fraction, scaled by the rest.
MUDNN_INLINE Vec coarse_exp2(Vec t) {
#if MUDNN_LEVEL == 2
  // t - floor(t), 0 for infinite t; the scaling takes floor(t) by itself.
  const Vec fraction = {_mm512_reduce_ps(t.v, _MM_FROUND_TO_NEG_INF | _MM_FROUND_NO_EXC)};
  Vec p = splat(0.01367030945f);
  p = fma(p, fraction, splat(0.05174499776f));
  p = fma(p, fraction, splat(0.2416043573f));
  p = fma(p, fraction, splat(0.6929729222f));
  p = fma(p, fraction, splat(1.000003493f));
  return {_mm512_scalef_ps(p.v, t.v)};
#else
  t = min(splat(129.0f), max(splat(-151.0f), t));
  const Vec n = round(t);
  const Vec fraction = t - n;
  Vec p = splat(0.009666368515f);
  p = fma(p, fraction, splat(0.05592197584f));
  p = fma(p, fraction, splat(0.2402234904f));
  p = fma(p, fraction, splat(0.6931210452f));
  p = fma(p, fraction, splat(1.0f));
  return scale_by_power(p, n);
#endif
}

template <bool kCoarse>
MUDNN_INLINE Vec exp_of(Vec x) {
  return kCoarse ? coarse_exp2(x * splat(1.44269504f)) : exp(x);
}

/// x / (1 + e^-z).
template <bool kCoarse>
MUDNN_INLINE Vec times_sigmoid(Vec x, Vec z) {
  const Vec denominator = splat(1.0f) + exp_of<kCoarse>(zero() - z);
  return kCoarse ? quotient<kCoarse>(x, denominator) : x * (splat(1.0f) / denominator);
}

/// By e^2x - 1 = 2^n (e^r - 1) + (2^n - 1), which keeps its precision where x is small. 1 beyond 10.
template <bool kCoarse>
MUDNN_INLINE Vec tanh_of(Vec x) {
  const Vec twice = min(splat(20.0f), max(splat(-20.0f), x + x));
  const Vec n = round(twice * splat(1.44269504f));
  Vec r = fma(n, splat(-0.693359375f), twice);
  r = fma(n, splat(2.12194440e-4f), r);
  Vec p = splat(1.0f / 720);
  if constexpr (!kCoarse) {
    p = fma(splat(1.0f / 5040), r, p);
  }
  p = fma(p, r, splat(1.0f / 120));
  p = fma(p, r, splat(1.0f / 24));
  p = fma(p, r, splat(1.0f / 6));
  p = fma(p, r, splat(0.5f));
  p = fma(p * r, r, r);
  const Vec power = scale_by_power(splat(1.0f), n);
  const Vec grown = fma(power, p, power - splat(1.0f));
  return quotient<kCoarse>(grown, grown + splat(2.0f));
}

/// The normal distribution's function for |x| up to 1, by its Taylor series; the first term left out is 4e-8.
MUDNN_INLINE Vec normal_cdf_near_zero(Vec x) {
  const Vec square = x * x;
  Vec p = splat(1.0f / 599040);
  p = fma(p, square, splat(-1.0f / 42240));
  p = fma(p, square, splat(1.0f / 3456));
  p = fma(p, square, splat(-1.0f / 336));
  p = fma(p, square, splat(1.0f / 40));
  p = fma(p, square, splat(-1.0f / 6));
  p = fma(p, square, splat(1.0f));
  return fma(x * splat(0.3989422804f), p, splat(0.5f));
}

/// The normal distribution's function: with a = |x| / sqrt(2), erfc(a) = e^-a^2 P(t), t = 1 / (1 + p a), P by Chebyshev
/// interpolation of e^a^2 erfc(a) over a from 0 to 6. Errors 3e-9 (3e-6 if coarse) before rounding.
template <bool kCoarse>
MUDNN_INLINE Vec normal_cdf(Vec x) {
  const Vec a = abs(x) * splat(0.707106781f);
  const Vec t = quotient<kCoarse>(splat(1.0f), fma(a, splat(kCoarse ? 0.5f : 0.4f), splat(1.0f)));
  Vec p;
  if constexpr (kCoarse) {
    p = splat(-0.2052532831f);
    p = fma(p, t, splat(0.56538086f));
    p = fma(p, t, splat(0.01296848731f));
    p = fma(p, t, splat(0.3559354661f));
    p = fma(p, t, splat(0.2701906752f));
    p = fma(p, t, splat(0.0007722737327f));
  } else {
    p = splat(0.08721732234f);
    p = fma(p, t, splat(-0.4619121182f));
    p = fma(p, t, splat(0.8350347782f));
    p = fma(p, t, splat(-0.5624778139f));
    p = fma(p, t, splat(0.5528981821f));
    p = fma(p, t, splat(0.07087046271f));
    p = fma(p, t, splat(0.2564242194f));
    p = fma(p, t, splat(0.2217231985f));
    p = fma(p, t, splat(0.0002217738988f));
  }
  const Vec tail = splat(0.5f) * p * exp_of<kCoarse>(zero() - a * a);
  const Vec far = select(less(x, zero()), tail, splat(1.0f) - tail);
  return kCoarse ? far : select(less(abs(x), splat(1.0f)), normal_cdf_near_zero(x), far);
}

template <bool kCoarse>
MUDNN_INLINE Vec silu(Vec x) {
  return times_sigmoid<kCoarse>(x, x);
}
/// x / 2 (1 + tanh(z)) = x sigmoid(2 z) with z = sqrt(2 / pi) (x + 0.044715 x^3).
template <bool kCoarse>
MUDNN_INLINE Vec gelu_tanh(Vec x) {
  return times_sigmoid<kCoarse>(x, x * fma(x * x, splat(2 * 0.7978845608f * 0.044715f), splat(2 * 0.7978845608f)));
}
template <bool kCoarse>
MUDNN_INLINE Vec gelu_erf(Vec x) {
  return x * normal_cdf<kCoarse>(x);
}

}  // namespace
}  // namespace mudnn
