#include "mudnn/glu.h"

#include "mudnn/kernels/activations.h"
#include "mudnn/kernels/dtypes.h"
#include "mudnn/kernels/rows.h"

namespace mudnn {
namespace {

template <Activation kActivation, bool kCoarse>
MUDNN_INLINE Vec activated(Vec x) {
  if constexpr (kActivation == Activation::kSilu) {
    return silu<kCoarse>(x);
  } else if constexpr (kActivation == Activation::kGeluErf) {
    return gelu_erf<kCoarse>(x);
  } else {
    return gelu_tanh<kCoarse>(x);
  }
}

template <Activation kActivation, class T>
void activate_rows(const GluProblem& problem, int64_t begin, int64_t end) {
  constexpr bool kCoarse = sizeof(T) == 2;
  for (int64_t row = begin; row < end; ++row) {
    const T* gate = row_of<T>(problem.gate, row);
    T* out = row_of<T>(problem.out, row);
    if (problem.up.data == nullptr) {
      for_vectors(problem.columns, [&](int64_t i, int count) {
        store_up_to(out + i, activated<kActivation, kCoarse>(load_up_to(gate + i, count)), count);
      });
      continue;
    }
    const T* up = row_of<T>(problem.up, row);
    for_vectors(problem.columns, [&](int64_t i, int count) {
      const Vec g = activated<kActivation, kCoarse>(load_up_to(gate + i, count));
      store_up_to(out + i, g * load_up_to(up + i, count), count);
    });
  }
}

template <class T>
void situ_rows(const GluProblem& problem, int64_t begin, int64_t end) {
  constexpr bool kCoarse = sizeof(T) == 2;
  const Vec beta = splat(problem.beta);
  const Vec linear_beta = splat(problem.linear_beta);
  const Vec per_beta = splat(1 / problem.beta);
  const Vec per_linear_beta = splat(1 / problem.linear_beta);
  for (int64_t row = begin; row < end; ++row) {
    const T* gate = row_of<T>(problem.gate, row);
    const T* up = row_of<T>(problem.up, row);
    T* out = row_of<T>(problem.out, row);
    for_vectors(problem.columns, [&](int64_t i, int count) {
      const Vec g = load_up_to(gate + i, count);
      const Vec u = load_up_to(up + i, count);
      const Vec squashed = beta * tanh_of<kCoarse>(g * per_beta);
      const Vec linear = linear_beta * tanh_of<kCoarse>(u * per_linear_beta);
      store_up_to(out + i, times_sigmoid<kCoarse>(squashed, g) * linear, count);
    });
  }
}

void activate(const GluProblem& problem, int64_t begin, int64_t end) {
  for_dtype(problem.dtype, [&](auto element) {
    using T = decltype(element);
    switch (problem.activation) {
      case Activation::kSilu:
        return activate_rows<Activation::kSilu, T>(problem, begin, end);
      case Activation::kGeluErf:
        return activate_rows<Activation::kGeluErf, T>(problem, begin, end);
      case Activation::kGeluTanh:
        return activate_rows<Activation::kGeluTanh, T>(problem, begin, end);
      case Activation::kSitu:
        return situ_rows<T>(problem, begin, end);
    }
  });
}

}  // namespace

MUDNN_TABLE(GluKernels, glu) = {activate};

}  // namespace mudnn
