// Exact samplers by rejection or inversion. Each takes as many numbers of its element's stream as it needs.
#pragma once

#include "backend/ops/random/philox.h"

namespace musa::random {

/// Poisson number of rate `rate` >= 0.
double sample_poisson(double rate, ElementStream& stream);

/// Successes in floor(count) trials of probability p; 0 where count or p is not positive, the count where p >= 1, NaN
/// where one is NaN.
double sample_binomial(double count, double p, ElementStream& stream);

/// Logarithm of a gamma number of shape `shape` > 0 and scale 1 (small shapes give numbers below any double).
double sample_log_gamma(double shape, ElementStream& stream);

}  // namespace musa::random
