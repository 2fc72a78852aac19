#include "mudnn/sampling.h"

#include "mudnn/kernels/dtypes.h"
#include "mudnn/kernels/lanes.h"
#include "mudnn/kernels/vec.h"

namespace mudnn {
namespace {

/// e^x for x <= 0, in double: sums of a vocabulary's weights must not depend on how their exponentials are rounded. As
/// exp of vec_math.h, with Taylor's series to r^12 (remainder 2e-16); plain loops over it become vector code. 0 below
/// -700: a token with a score of -infinity must not be what is left when rounding has eaten all others.
MUDNN_INLINE double exact_exp(double x) {
  const double seen = x < -700.0 ? 0.0 : 1.0;
  x = x < -700.0 ? -700.0 : x;
  const double shifted = x * 1.4426950408889634 + 0x1.8p52;  // the integer stands in the low bits
  const double n = shifted - 0x1.8p52;
  double r = x - n * 0.693147180369123816490;
  r = r - n * 1.90821492927058770002e-10;
  double p = 1.0 / 479001600;
  p = p * r + 1.0 / 39916800;
  p = p * r + 1.0 / 3628800;
  p = p * r + 1.0 / 362880;
  p = p * r + 1.0 / 40320;
  p = p * r + 1.0 / 5040;
  p = p * r + 1.0 / 720;
  p = p * r + 1.0 / 120;
  p = p * r + 1.0 / 24;
  p = p * r + 1.0 / 6;
  p = p * r + 0.5;
  p = p * r + 1.0;
  p = p * r + 1.0;
  uint64_t bits = 0;
  memcpy(&bits, &shifted, sizeof bits);
  bits = (bits + 1023) << 52;
  double power = 0;
  memcpy(&power, &bits, sizeof power);
  return p * power * seen;
}

/// weights[lane] = e^(v[lane] - largest).
MUDNN_INLINE void weights_of(Vec v, double largest, double* weights) {
  float lanes[Vec::kLanes];
  store(lanes, v);
  for (int lane = 0; lane < Vec::kLanes; ++lane) {
    weights[lane] = exact_exp(static_cast<double>(lanes[lane]) - largest);
  }
}

template <class T>
int64_t scale_row(const T* logits, int64_t count, float temperature, float* scores) {
  const Vec divisor = splat(temperature);
  Vec most = splat(-__builtin_inff());
  unsigned nan = 0;
  for_vectors(count, [&](int64_t i, int lanes) {
    const Vec v = load_up_to(logits + i, lanes) / divisor;
    nan |= lanes_nan(v) & lanes_below(lanes);
    store_up_to(scores + i, v, lanes);
    most = lanes == Vec::kLanes ? max(v, most) : most;
  });
  float largest = reduce_max(most);
  for (int64_t i = count / Vec::kLanes * Vec::kLanes; i < count; ++i) {
    largest = scores[i] > largest ? scores[i] : largest;
  }
  for (int64_t i = 0; i < count; i += Vec::kLanes) {
    const int lanes = count - i < Vec::kLanes ? static_cast<int>(count - i) : Vec::kLanes;
    const Vec v = load_up_to(scores + i, lanes);
    const unsigned found = (nan != 0 ? lanes_nan(v) : lanes_equal(v, splat(largest))) & lanes_below(lanes);
    if (found != 0) {
      return i + __builtin_ctz(found);
    }
  }
  return 0;
}

int64_t scale(Dtype dtype, const void* logits, int64_t count, float temperature, float* scores) {
  int64_t index = 0;
  for_dtype(dtype, [&](auto element) {
    index = scale_row(static_cast<const decltype(element)*>(logits), count, temperature, scores);
  });
  return index;
}

MUDNN_INLINE Vec distance(Vec score, Vec largest) { return (largest - score) * splat(64); }

void histogram(const float* scores, int64_t count, float largest, ScoreHistogram* histogram) {
  memset(histogram, 0, sizeof *histogram);
  const Vec most = splat(largest);
  for_vectors(count, [&](int64_t i, int lanes) {
    const Vec v = load_up_to(scores + i, lanes);
    float places[Vec::kLanes];
    double weights[Vec::kLanes];
    store(places, min(distance(v, most), splat(kScoreBuckets - 1)));
    weights_of(v, static_cast<double>(largest), weights);
    for (int lane = 0; lane < lanes; ++lane) {
      const int place = static_cast<int>(places[lane]);
      ++histogram->counts[place];
      histogram->sums[place] += weights[lane];
    }
  });
}

int64_t bucket(const float* scores, int64_t count, float largest, int64_t which, int32_t* ids, float* values) {
  const Vec most = splat(largest);
  const Vec from = splat(static_cast<float>(which));
  const Vec to = splat(which == kScoreBuckets - 1 ? __builtin_inff() : static_cast<float>(which + 1));
  const bool open = which == kScoreBuckets - 1;
  int64_t found = 0;
  for_vectors(count, [&](int64_t i, int lanes) {
    const Vec v = load_up_to(scores + i, lanes);
    const Vec d = distance(v, most);
    unsigned inside = lanes_at_least(d, from) & lanes_below(lanes);
    if (!open) {
      inside &= ~lanes_at_least(d, to);
    }
    if (inside != 0) {
      found += append_lanes(inside, v, static_cast<int32_t>(i), ids + found, values + found);
    }
  });
  return found;
}

// Runs of scores of which all that equal the least are kept, or none.
template <class F>
MUDNN_INLINE void for_runs(int64_t first, int64_t count, int64_t last, F&& body) {
  int64_t with_equal = last + 1 - first;
  with_equal = with_equal < 0 ? 0 : with_equal > count ? count : with_equal;
  body(int64_t{0}, with_equal, true);
  body(with_equal, count - with_equal, false);
}

double weigh(const float* scores, int64_t first, int64_t count, float largest, const Cut& cut, double* weights) {
  const Vec least = splat(cut.least);
  double sums[Vec::kLanes] = {};
  for_runs(first, count, cut.last, [&](int64_t from, int64_t size, bool with_equal) {
    for_vectors(size, [&](int64_t i, int lanes) {
      const Vec v = load_up_to(scores + from + i, lanes);
      const Vec one = splat(1.0f);
      float kept[Vec::kLanes];
      store(kept, with_equal ? select(less(v, least), zero(), one) : select(less(least, v), one, zero()));
      for (int lane = lanes; lane < Vec::kLanes; ++lane) {
        kept[lane] = 0;
      }
      double every[Vec::kLanes];
      weights_of(v, static_cast<double>(largest), every);
      for (int lane = 0; lane < Vec::kLanes; ++lane) {
        every[lane] *= static_cast<double>(kept[lane]);
        sums[lane] += every[lane];
      }
      if (weights != nullptr) {
        memcpy(weights + from + i, every, static_cast<size_t>(lanes) * sizeof(double));
      }
    });
  });
  double sum = 0;
  for (const double part : sums) {
    sum += part;
  }
  return sum;
}

void filter(float* scores, int64_t count, const Cut& cut) {
  const Vec least = splat(cut.least);
  const Vec never = splat(-__builtin_inff());
  for_runs(0, count, cut.last, [&](int64_t from, int64_t size, bool with_equal) {
    for_vectors(size, [&](int64_t i, int lanes) {
      const Vec v = load_up_to(scores + from + i, lanes);
      store_up_to(
          scores + from + i, with_equal ? select(less(v, least), never, v) : select(less(least, v), v, never), lanes);
    });
  });
}

}  // namespace

MUDNN_TABLE(SamplingKernels, sampling) = {scale, histogram, bucket, weigh, filter};

}  // namespace mudnn
