#include "backend/ops/random/samplers.h"

#include <cmath>
#include <limits>

namespace musa::random {
namespace {

// Above this variance the logarithms in an acceptance test cancel to noise, while the normal distribution is off by a
// skewness below 1e-6.
constexpr double kNormalVariance = 1e12;

/// ln(n!). The reentrant function: std::lgamma writes a global.
double log_factorial(double n) {
  int sign = 0;
  return ::lgamma_r(n + 1, &sign);
}

/// Hoermann, "The transformed rejection method for generating Poisson random variables" (1993), algorithm PTRS.
double poisson_by_rejection(double rate, ElementStream& stream) {
  const double root = std::sqrt(rate);
  const double log_rate = std::log(rate);
  const double b = 0.931 + 2.53 * root;
  const double a = -0.059 + 0.02483 * b;
  const double inverse_alpha = 1.1239 + 1.1328 / (b - 3.4);
  const double squeeze = 0.9277 - 3.6224 / (b - 2);
  for (;;) {
    const double u = stream.next_open() - 0.5;
    const double v = stream.next_open();
    const double edge = 0.5 - std::fabs(u);
    const double k = std::floor((2 * a / edge + b) * u + rate + 0.43);
    if (edge >= 0.07 && v <= squeeze) {
      return k;
    }
    if (k < 0 || (edge < 0.013 && v > edge)) {
      continue;
    }
    if (std::log(v * inverse_alpha / (a / (edge * edge) + b)) <= k * log_rate - rate - log_factorial(k)) {
      return k;
    }
  }
}

/// Hoermann, "The generation of binomial random variates" (1993), algorithm BTRS; p <= 0.5, n * p >= 10.
double binomial_by_rejection(double n, double p, ElementStream& stream) {
  const double deviation = std::sqrt(n * p * (1 - p));
  const double b = 1.15 + 2.53 * deviation;
  const double a = -0.0873 + 0.0248 * b + 0.01 * p;
  const double c = n * p + 0.5;
  const double squeeze = 0.92 - 4.2 / b;
  const double alpha = (2.83 + 5.1 / b) * deviation;
  const double log_odds = std::log(p / (1 - p));
  const double mode = std::floor((n + 1) * p);
  const double log_mode = log_factorial(mode) + log_factorial(n - mode);
  for (;;) {
    const double u = stream.next_open() - 0.5;
    const double v = stream.next_open();
    const double edge = 0.5 - std::fabs(u);
    const double k = std::floor((2 * a / edge + b) * u + c);
    if (edge >= 0.07 && v <= squeeze) {
      return k;
    }
    if (k < 0 || k > n) {
      continue;
    }
    const double log_ratio = log_mode - log_factorial(k) - log_factorial(n - k) + (k - mode) * log_odds;
    if (std::log(v * alpha / (a / (edge * edge) + b)) <= log_ratio) {
      return k;
    }
  }
}

/// Successes by the waiting times between them.
double binomial_by_waiting(double n, double p, ElementStream& stream) {
  const double scale = 1 / std::log1p(-p);
  double trials = 0;
  for (double successes = 0;; ++successes) {
    trials += std::ceil(std::log(stream.next_open()) * scale);
    if (trials > n) {
      return successes;
    }
  }
}

}  // namespace

double sample_poisson(double rate, ElementStream& stream) {
  if (rate == 0 || std::isinf(rate)) {
    return rate;
  }
  if (rate > kNormalVariance) {
    return std::floor(rate + std::sqrt(rate) * stream.next_normal() + 0.5);
  }
  if (rate >= 10) {
    return poisson_by_rejection(rate, stream);
  }
  // Arrivals of rate 1 until `rate`, in the logarithm (Knuth, The Art of Computer Programming 2, 3.4.1).
  const double limit = std::exp(-rate);
  double product = stream.next_open();
  double arrivals = 0;
  while (product > limit) {
    ++arrivals;
    product *= stream.next_open();
  }
  return arrivals;
}

double sample_binomial(double count, double p, ElementStream& stream) {
  if (std::isnan(count) || std::isnan(p)) {
    return std::numeric_limits<double>::quiet_NaN();
  }
  const double n = std::floor(count);
  if (n <= 0 || p <= 0) {
    return 0;
  }
  if (p >= 1 || std::isinf(n)) {
    return n;
  }
  if (p > 0.5) {
    return n - sample_binomial(n, 1 - p, stream);
  }
  const double variance = n * p * (1 - p);
  if (variance > kNormalVariance) {
    return std::floor(n * p + std::sqrt(variance) * stream.next_normal() + 0.5);
  }
  return n * p >= 10 ? binomial_by_rejection(n, p, stream) : binomial_by_waiting(n, p, stream);
}

// Marsaglia and Tsang, "A simple method for generating gamma variables" (2000); below shape 1 a number of shape + 1
// times u^(1 / shape).
double sample_log_gamma(double shape, ElementStream& stream) {
  if (std::isnan(shape) || std::isinf(shape)) {
    return shape;
  }
  double boost = 0;
  if (shape < 1) {
    if (shape <= 0) {
      return -std::numeric_limits<double>::infinity();
    }
    boost = std::log(stream.next_open()) / shape;
    shape += 1;
  }
  const double d = shape - 1.0 / 3;
  const double c = 1 / std::sqrt(9 * d);
  for (;;) {
    const double x = stream.next_normal();
    const double base = 1 + c * x;
    if (base <= 0) {
      continue;
    }
    const double v = base * base * base;
    const double log_v = std::log(v);
    if (std::log(stream.next_open()) < 0.5 * x * x + d * (1 - v + log_v)) {
      return std::log(d) + log_v + boost;
    }
  }
}

}  // namespace musa::random
