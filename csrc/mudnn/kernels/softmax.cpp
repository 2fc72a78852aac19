#include "mudnn/softmax.h"

#include <math.h>

#include "mudnn/kernels/activations.h"
#include "mudnn/kernels/dtypes.h"
#include "mudnn/kernels/reduce.h"
#include "mudnn/scratch.h"

namespace mudnn {
namespace {

constexpr float kLowest = -__builtin_inff();

/// The largest element; where there are NaN any number or NaN (they show in the sum).
template <class T>
MUDNN_INLINE float row_max(const T* x, int64_t n) {
  const Vec lowest = splat(kLowest);
  Vec a = lowest, b = lowest;
  int64_t i = 0;
  for (; i + 2 * Vec::kLanes <= n; i += 2 * Vec::kLanes) {
    a = max(a, load(x + i));
    b = max(b, load(x + i + Vec::kLanes));
  }
  for (; i < n; i += Vec::kLanes) {
    const int count = n - i < Vec::kLanes ? static_cast<int>(n - i) : int{Vec::kLanes};
    a = max(a, load_filled(x + i, count, lowest));
  }
  return reduce_max(max(a, b));
}

template <class T>
MUDNN_INLINE void softmax_row(const T* x, T* out, int64_t n) {
  constexpr bool kCoarse = sizeof(T) == 2;
  const Vec lowest = splat(kLowest);
  const Vec largest = splat(row_max(x, n));
  float* kept = nullptr;  // the exponentials: in `out` where it is as precise
  if constexpr (kCoarse) {
    kept = static_cast<float*>(scratch(0, static_cast<size_t>(n) * sizeof(float)));
  } else {
    kept = out;
  }
  const double sum = sum_over(n, [&](Vec total, int64_t i, int count) {
    const Vec e = exp_of<kCoarse>(load_filled(x + i, count, lowest) - largest);
    store_up_to(kept + i, e, count);
    return total + e;
  });
  if constexpr (kCoarse) {
    const Vec scale = splat(static_cast<float>(1 / sum));
    for_vectors(n, [&](int64_t i, int count) { store_up_to(out + i, load_up_to(kept + i, count) * scale, count); });
  } else {
    const Vec divisor = splat(static_cast<float>(sum));
    for_vectors(n, [&](int64_t i, int count) { store_up_to(out + i, load_up_to(kept + i, count) / divisor, count); });
  }
}

template <class T>
MUDNN_INLINE void log_softmax_row(const T* x, T* out, int64_t n) {
  const Vec lowest = splat(kLowest);
  const Vec largest = splat(row_max(x, n));
  const double sum = sum_over(n, [&](Vec total, int64_t i, int count) {
    return total + exp_of<sizeof(T) == 2>(load_filled(x + i, count, lowest) - largest);
  });
  const Vec log_sum = splat(static_cast<float>(::log(sum)));
  for_vectors(
      n, [&](int64_t i, int count) { store_up_to(out + i, load_up_to(x + i, count) - largest - log_sum, count); });
}

template <class T>
MUDNN_INLINE void softmax_backward_row(const T* grad, const T* out, T* grad_x, int64_t n) {
  const Vec sum = splat(static_cast<float>(sum_over(n, [&](Vec total, int64_t i, int count) {
    return fma(load_up_to(grad + i, count), load_up_to(out + i, count), total);
  })));
  for_vectors(n, [&](int64_t i, int count) {
    store_up_to(grad_x + i, load_up_to(out + i, count) * (load_up_to(grad + i, count) - sum), count);
  });
}

template <class T>
MUDNN_INLINE void log_softmax_backward_row(const T* grad, const T* out, T* grad_x, int64_t n) {
  const Vec sum = splat(static_cast<float>(sum_over(n, [&](Vec total, int64_t i, int count) {
    return total + load_up_to(grad + i, count);
  })));
  for_vectors(n, [&](int64_t i, int count) {
    const Vec probability = exp_of<sizeof(T) == 2>(load_up_to(out + i, count));
    store_up_to(grad_x + i, fma(zero() - probability, sum, load_up_to(grad + i, count)), count);
  });
}

void softmax(const SoftmaxProblem& problem, int64_t begin, int64_t end) {
  for_dtype(problem.dtype, [&](auto element) {
    using T = decltype(element);
    const int64_t n = problem.columns;
    for (int64_t row = begin; row < end; ++row) {
      const T* x = static_cast<const T*>(problem.x) + row * n;
      T* out = static_cast<T*>(problem.out) + row * n;
      if (problem.kind == SoftmaxKind::kSoftmax) {
        softmax_row(x, out, n);
      } else {
        log_softmax_row(x, out, n);
      }
    }
  });
}

void softmax_backward(const SoftmaxBackwardProblem& problem, int64_t begin, int64_t end) {
  for_dtype(problem.dtype, [&](auto element) {
    using T = decltype(element);
    const int64_t n = problem.columns;
    for (int64_t row = begin; row < end; ++row) {
      const T* grad = static_cast<const T*>(problem.grad) + row * n;
      const T* out = static_cast<const T*>(problem.out) + row * n;
      T* grad_x = static_cast<T*>(problem.grad_x) + row * n;
      if (problem.kind == SoftmaxKind::kSoftmax) {
        softmax_backward_row(grad, out, grad_x, n);
      } else {
        log_softmax_backward_row(grad, out, grad_x, n);
      }
    }
  });
}

}  // namespace

MUDNN_TABLE(SoftmaxKernels, softmax) = {softmax, softmax_backward};

}  // namespace mudnn
