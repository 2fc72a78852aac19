#include "mudnn/sampling.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "mudnn/isa.h"
#include "mudnn/scratch.h"

namespace mudnn {

MUDNN_TABLES_OF(SamplingKernels, sampling)

namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

struct Candidate {
  float score;
  int32_t id;
};

// The scores of one row in the order in which they are taken, found bucket by bucket.
class Descent {
 public:
  Descent(const float* scores, int64_t count, float largest) : scores_(scores), count_(count), largest_(largest) {
    const size_t room = static_cast<size_t>(count + 64);
    char* memory = static_cast<char*>(scratch(2, sizeof(ScoreHistogram) + room * (4 + 4 + sizeof(Candidate))));
    histogram_ = reinterpret_cast<ScoreHistogram*>(memory);
    ids_ = reinterpret_cast<int32_t*>(memory + sizeof(ScoreHistogram));
    values_ = reinterpret_cast<float*>(ids_ + room);
    candidates_ = reinterpret_cast<Candidate*>(values_ + room);
    sampling_kernels().histogram(scores, count, largest, histogram_);
  }

  /// Of all scores.
  double weight() const {
    double sum = 0;
    for (const double part : histogram_->sums) {
      sum += part;
    }
    return sum;
  }

  /// The first `most` scores in order, or fewer where the weights of fewer reach `enough`; and their weight.
  Cut take(int64_t most, double enough, double* weight) {
    int64_t taken = 0;
    double sum = 0;
    Cut cut{-kInfinity, count_};
    for (int64_t which = 0; which < kScoreBuckets; ++which) {
      const int64_t here = histogram_->counts[which];
      if (here == 0) {
        continue;
      }
      // A bucket whose sum comes near the goal is looked into, too: its weights one by one may add up otherwise.
      if (taken + here < most && sum + histogram_->sums[which] * (1 + 1e-12) < enough) {
        taken += here;
        sum += histogram_->sums[which];
        continue;
      }
      load(which);
      for (int64_t i = 0; i < here; ++i) {
        sum += std::exp(static_cast<double>(candidates_[i].score) - static_cast<double>(largest_));
        cut = {candidates_[i].score, candidates_[i].id};
        if (++taken >= most || sum >= enough) {
          *weight = sum;
          return cut;
        }
      }
    }
    *weight = sum;
    return {-kInfinity, count_};
  }

 private:
  void load(int64_t which) {
    const int64_t size = sampling_kernels().bucket(scores_, count_, largest_, which, ids_, values_);
    bool sorted = true;
    for (int64_t i = 0; i < size; ++i) {
      candidates_[i] = {values_[i], ids_[i]};
      sorted &= i == 0 || values_[i] <= values_[i - 1];
    }
    if (!sorted) {
      std::sort(candidates_, candidates_ + size, [](const Candidate& a, const Candidate& b) {
        return a.score != b.score ? a.score > b.score : a.id < b.id;
      });
    }
  }

  const float* scores_;
  int64_t count_;
  float largest_;
  ScoreHistogram* histogram_;
  int32_t* ids_;
  float* values_;
  Candidate* candidates_;
};

Cut cut_of(const float* scores, int64_t count, float largest, const SamplingRow& row) {
  Cut cut{-kInfinity, count};
  const bool by_count = row.top_k >= 1 && row.top_k < count;
  if (by_count || row.top_p < 1) {
    Descent descent(scores, count, largest);
    const int64_t most = by_count ? row.top_k : count;
    double weight = 0;
    if (by_count) {
      cut = descent.take(most, std::numeric_limits<double>::infinity(), &weight);
    } else {
      weight = descent.weight();
    }
    if (row.top_p < 1) {
      cut = descent.take(most, static_cast<double>(row.top_p) * weight, &weight);
    }
  }
  if (row.min_p > 0) {
    const float least = largest + std::log(std::min(row.min_p, 1.0f));
    if (least > cut.least) {
      cut = {least, count};
    }
  }
  return cut;
}

int64_t draw(const float* scores, int64_t count, float largest, const Cut& cut, double uniform) {
  const SamplingKernels& kernels = sampling_kernels();
  const int64_t parts = (count + kSamplingPart - 1) / kSamplingPart;
  auto* memory = static_cast<double*>(scratch(3, static_cast<size_t>(parts + kSamplingPart) * sizeof(double)));
  double* weights = memory + parts;
  double sum = 0;
  for (int64_t part = 0; part < parts; ++part) {
    const int64_t first = part * kSamplingPart;
    const int64_t here = std::min(kSamplingPart, count - first);
    memory[part] = kernels.weigh(scores + first, first, here, largest, cut, nullptr);
    sum += memory[part];
  }
  double left = uniform * sum;
  int64_t last_kept = 0;
  for (int64_t part = 0; part < parts; ++part) {
    if (memory[part] == 0) {
      continue;
    }
    const bool passes = left >= memory[part];
    left -= passes ? memory[part] : 0;
    last_kept = part;
    if (!passes) {
      break;
    }
  }
  const int64_t first = last_kept * kSamplingPart;
  const int64_t here = std::min(kSamplingPart, count - first);
  kernels.weigh(scores + first, first, here, largest, cut, weights);
  int64_t chosen = first;
  for (int64_t i = 0; i < here; ++i) {
    if (weights[i] > 0) {
      chosen = first + i;
      left -= weights[i];
      if (left < 0) {
        break;
      }
    }
  }
  return chosen;
}

const void* row_of(const SamplingProblem& problem, int64_t row) {
  const int64_t element = problem.dtype == Dtype::kFloat32 ? 4 : 2;
  return static_cast<const char*>(problem.logits) + row * problem.vocabulary * element;
}

float divisor_of(const SamplingRow& row) { return row.temperature == 0 ? 1.0f : row.temperature; }

}  // namespace

void sample(const SamplingProblem& problem, int64_t* ids, const Parallel& parallel) {
  const SamplingKernels& kernels = sampling_kernels();
  parallel.for_each(problem.rows, 1, [&](int64_t begin, int64_t end) {
    auto* scores = static_cast<float*>(scratch(1, static_cast<size_t>(problem.vocabulary) * sizeof(float)));
    for (int64_t row = begin; row < end; ++row) {
      const SamplingRow& how = problem.row[row];
      const int64_t best =
          kernels.scale(problem.dtype, row_of(problem, row), problem.vocabulary, divisor_of(how), scores);
      const float largest = scores[best];
      if (how.temperature == 0 || !std::isfinite(largest)) {
        ids[row] = best;
        continue;
      }
      const Cut cut = cut_of(scores, problem.vocabulary, largest, how);
      ids[row] = draw(scores, problem.vocabulary, largest, cut, how.uniform);
    }
  });
}

void filter_logits(const SamplingProblem& problem, float* out, const Parallel& parallel) {
  const SamplingKernels& kernels = sampling_kernels();
  parallel.for_each(problem.rows, 1, [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      const SamplingRow& how = problem.row[row];
      float* scores = out + row * problem.vocabulary;
      const int64_t best =
          kernels.scale(problem.dtype, row_of(problem, row), problem.vocabulary, divisor_of(how), scores);
      const float largest = scores[best];
      if (std::isfinite(largest)) {
        kernels.filter(scores, problem.vocabulary, cut_of(scores, problem.vocabulary, largest, how));
      }
    }
  });
}

}  // namespace mudnn
