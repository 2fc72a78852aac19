// One token of a vocabulary for each row of logits, without sorting a row.
#pragma once

#include "mudnn/parallel.h"
#include "mudnn/types.h"

namespace mudnn {

/// Which tokens may be drawn, for scores = logits / temperature in float32: the top_k largest scores; of their softmax
/// the fewest largest whose sum reaches top_p; of these the ones with at least min_p times the largest probability. Of
/// equal scores the one with the lower id comes first.
struct SamplingRow {
  float temperature;  // 0: the first of the largest is taken
  int64_t top_k;      // below 1: no such limit
  float top_p;        // 1 or more: no such limit
  float min_p;        // 0 or less: no such limit
  double uniform;  // in [0, 1): where the token lies in the distribution, whose tokens are in the order of their ids
};

struct SamplingProblem {
  Dtype dtype;
  int64_t rows;
  int64_t vocabulary;
  const void* logits;  // [rows, vocabulary], contiguous
  const SamplingRow* row;
};

/// ids: [rows]. Where the largest score is NaN (the first one counts) or infinite it is taken.
void sample(const SamplingProblem& problem, int64_t* ids, const Parallel& parallel);
/// out: [rows, vocabulary], the scores (with a temperature of 0 the logits), -infinity for what may not be drawn.
void filter_logits(const SamplingProblem& problem, float* out, const Parallel& parallel);

/// Kept are scores above `least`, and those equal to it whose index is at most `last`.
struct Cut {
  float least;
  int64_t last;
};

constexpr int64_t kSamplingPart = 1024;
constexpr int kScoreBuckets = 2048;

struct ScoreHistogram {
  uint32_t counts[kScoreBuckets];
  double sums[kScoreBuckets];  // of weights
};

/// Of one instruction set; on one row. The weight of a score is e^(score - largest).
struct SamplingKernels {
  /// scores = logits / temperature; returns the index of the largest, of the first NaN if there is one.
  int64_t (*scale)(Dtype dtype, const void* logits, int64_t count, float temperature, float* scores);
  /// Buckets by (largest - score), 64 to a unit, the last one open.
  void (*histogram)(const float* scores, int64_t count, float largest, ScoreHistogram* histogram);
  /// Indices and scores of a bucket, in the order of indices; both with room for a vector more. Returns how many.
  int64_t (*bucket)(const float* scores, int64_t count, float largest, int64_t which, int32_t* ids, float* values);
  /// The weights of what is kept, 0 for the rest; returns their sum. weights may be null. `first`: index of scores[0].
  double (*weigh)(const float* scores, int64_t first, int64_t count, float largest, const Cut& cut, double* weights);
  /// scores = -infinity where not kept.
  void (*filter)(float* scores, int64_t count, const Cut& cut);
};

}  // namespace mudnn
