#include "mudnn/delta_rule.h"

#include <math.h>

#include "mudnn/kernels/dtypes.h"
#include "mudnn/scratch.h"

namespace mudnn {
namespace {

/// Columns of a state don't depend on each other: a block of this many, with 128 keys, stays in the first cache over
/// all tokens of a sequence.
constexpr int kVectors = 2;
constexpr int64_t kBlock = kVectors * Vec::kLanes;

/// The row times `scale`, divided by its length if `l2norm`, as float32.
template <class T>
MUDNN_INLINE void prepare(const T* row, int64_t n, bool l2norm, float scale, float* out) {
  if (l2norm) {
    Vec squares = zero();
    for_vectors(n, [&](int64_t i, int count) {
      const Vec x = load_up_to(row + i, count);
      squares = fma(x, x, squares);
    });
    scale /= sqrtf(reduce_add(squares) + 1e-6f);
  }
  const Vec factor = splat(scale);
  for_vectors(n, [&](int64_t i, int count) { store_up_to(out + i, load_up_to(row + i, count) * factor, count); });
}

template <class T>
void run_block(const DeltaRuleProblem& problem, int64_t sequence, int64_t head, int64_t first) {
  const int64_t keys = problem.keys;
  const int64_t values = problem.values;
  const int64_t left = values - first;
  int count[kVectors];
  for (int j = 0; j < kVectors; ++j) {
    const int64_t rest = left - j * int64_t{Vec::kLanes};
    count[j] = static_cast<int>(rest < 0 ? 0 : (rest < Vec::kLanes ? rest : Vec::kLanes));
  }
  float* block = static_cast<float*>(scratch(0, sizeof(float) * static_cast<size_t>(keys * (kBlock + 4))));
  float* q = block + keys * kBlock;
  float* k = q + keys;
  float* alpha = k + keys;
  float* decayed_k = alpha + keys;
  const int64_t corner = (sequence * problem.heads + head) * keys * values + first;

  for (int64_t d = 0; d < keys; ++d) {
    for (int j = 0; j < kVectors; ++j) {
      const bool is_zero = problem.initial == nullptr || count[j] == 0;
      const float* from = problem.initial + corner + d * values + j * Vec::kLanes;
      store(block + d * kBlock + j * Vec::kLanes, is_zero ? zero() : load_up_to(from, count[j]));
    }
  }
  for (int64_t token = problem.bounds[sequence]; token < problem.bounds[sequence + 1]; ++token) {
    const int64_t row = token * problem.heads + head;
    prepare(static_cast<const T*>(problem.q) + row * keys, keys, problem.l2norm, problem.scale, q);
    prepare(static_cast<const T*>(problem.k) + row * keys, keys, problem.l2norm, 1, k);
    for_vectors(keys, [&](int64_t i, int n) {
      const Vec decay = problem.per_channel ? load_up_to(problem.decay + row * keys + i, n) : splat(problem.decay[row]);
      const Vec factor = exp(decay);
      store_up_to(alpha + i, factor, n);
      store_up_to(decayed_k + i, factor * load_up_to(k + i, n), n);
    });
    Vec seen[kVectors];
    Vec read[kVectors];
    for (int j = 0; j < kVectors; ++j) {
      seen[j] = zero();
      read[j] = zero();
    }
    for (int64_t d = 0; d < keys; ++d) {
      const Vec factor = splat(decayed_k[d]);
      for (int j = 0; j < kVectors; ++j) {
        seen[j] = fma(load(block + d * kBlock + j * Vec::kLanes), factor, seen[j]);
      }
    }
    const Vec beta = splat(problem.beta[row]);
    const T* v = static_cast<const T*>(problem.v) + row * values + first;
    for (int j = 0; j < kVectors; ++j) {
      const Vec value = count[j] == 0 ? zero() : load_up_to(v + j * Vec::kLanes, count[j]);
      seen[j] = beta * (value - seen[j]);
    }
    for (int64_t d = 0; d < keys; ++d) {
      const Vec kept = splat(alpha[d]);
      const Vec written = splat(k[d]);
      const Vec asked = splat(q[d]);
      for (int j = 0; j < kVectors; ++j) {
        float* cell = block + d * kBlock + j * Vec::kLanes;
        const Vec s = fma(written, seen[j], kept * load(cell));
        store(cell, s);
        read[j] = fma(s, asked, read[j]);
      }
    }
    T* out = static_cast<T*>(problem.out) + row * values + first;
    for (int j = 0; j < kVectors; ++j) {
      if (count[j] > 0) {
        store_up_to(out + j * Vec::kLanes, read[j], count[j]);
      }
    }
  }
  for (int64_t d = 0; d < keys; ++d) {
    for (int j = 0; j < kVectors; ++j) {
      if (count[j] > 0) {
        store_up_to(
            problem.state + corner + d * values + j * Vec::kLanes, load(block + d * kBlock + j * Vec::kLanes),
            count[j]);
      }
    }
  }
}

void run(const DeltaRuleProblem& problem, int64_t blocks, int64_t begin, int64_t end) {
  for_dtype(problem.dtype, [&](auto element) {
    for (int64_t task = begin; task < end; ++task) {
      const int64_t pair = task / blocks;
      run_block<decltype(element)>(problem, pair / problem.heads, pair % problem.heads, task % blocks * kBlock);
    }
  });
}

}  // namespace

MUDNN_TABLE(DeltaRuleKernels, delta_rule) = {kBlock, run};

}  // namespace mudnn
