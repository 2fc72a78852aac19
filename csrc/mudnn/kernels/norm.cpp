#include "mudnn/norm.h"

#include <math.h>

#include "mudnn/kernels/activations.h"
#include "mudnn/kernels/dtypes.h"
#include "mudnn/kernels/reduce.h"
#include "mudnn/kernels/rows.h"
#include "mudnn/kernels/squares.h"
#include "mudnn/scratch.h"

namespace mudnn {
namespace {

template <bool kValue>
struct Flag {
  static constexpr bool value = kValue;
};

/// body(Flag<true>{}) or body(Flag<false>{}).
template <class F>
MUDNN_INLINE void for_flag(bool flag, F&& body) {
  if (flag) {
    body(Flag<true>{});
  } else {
    body(Flag<false>{});
  }
}

/// body(T{}, W{}) with the types of rows and of weights.
template <class F>
MUDNN_INLINE void for_dtypes(Dtype dtype, Dtype weight_dtype, F&& body) {
  for_dtype(dtype, [&](auto element) {
    if (weight_dtype == dtype) {
      body(element, element);
    } else {
      body(element, float{});
    }
  });
}

MUDNN_INLINE void store_statistic(Dtype dtype, void* to, int64_t row, double value) {
  if (to != nullptr) {
    for_dtype(dtype, [&](auto element) {
      store_part(static_cast<decltype(element)*>(to) + row, splat(static_cast<float>(value)), 1);
    });
  }
}

/// The first lane.
MUDNN_INLINE float first_lane(Vec v) {
  float lanes[Vec::kLanes];
  store(lanes, v);
  return lanes[0];
}

template <class T, class W>
MUDNN_INLINE void layer_norm_row(const NormProblem& problem, int64_t row) {
  const int64_t n = problem.columns;
  const T* x = row_of<T>(problem.x, row);
  T* out = row_of<T>(problem.out, row);
  const W* weight = static_cast<const W*>(problem.weight);
  const W* bias = static_cast<const W*>(problem.bias);
  const auto columns = static_cast<double>(n);
  // Sums of float32 are of distances from the first element: those of a row far from zero would lose digits.
  const float first = sizeof(T) == 4 ? first_lane(load_part(x, 1)) : 0.0f;
  const Vec shift = splat(first);
  const double mean = static_cast<double>(first) +
      sum_over(n, [&](Vec sum, int64_t i, int count) {
        if constexpr (sizeof(T) == 4) {
          return sum + (load_filled(x + i, count, shift) - shift);
        } else {
          return sum + load_up_to(x + i, count);
        }
      }) / columns;
  const Vec center = splat(static_cast<float>(mean));
  // What float32 leaves of the mean: much in a row far from zero.
  const Vec rest = splat(static_cast<float>(mean - static_cast<double>(static_cast<float>(mean))));
  const auto distance_of = [&](Vec value) {
    if constexpr (sizeof(T) == 4) {
      return (value - center) - rest;
    } else {
      return value - center;
    }
  };
  const double squares = sum_over(n, [&](Vec sum, int64_t i, int count) {
    const Vec distance = distance_of(load_filled(x + i, count, center));
    return fma(distance, distance, sum);
  });
  const double rstd = 1 / ::sqrt(squares / columns + problem.eps);
  store_statistic(problem.statistics_dtype, problem.mean, row, mean);
  store_statistic(problem.statistics_dtype, problem.rstd, row, rstd);
  const Vec scale = splat(static_cast<float>(rstd));
  for_flag(weight != nullptr, [&](auto weighted) {
    for_flag(bias != nullptr, [&](auto biased) {
      for_vectors(n, [&](int64_t i, int count) {
        Vec y = distance_of(load_up_to(x + i, count)) * scale;
        if constexpr (weighted.value && biased.value) {
          y = fma(y, load_up_to(weight + i, count), load_up_to(bias + i, count));
        } else if constexpr (weighted.value) {
          y = y * load_up_to(weight + i, count);
        } else if constexpr (biased.value) {
          y = y + load_up_to(bias + i, count);
        }
        store_up_to(out + i, y, count);
      });
    });
  });
}

template <GateKind kKind, bool kCoarse>
MUDNN_INLINE Vec gated(Vec value, Vec gate) {
  return kKind == GateKind::kSilu ? value * silu<kCoarse>(gate) : times_sigmoid<kCoarse>(value, gate);
}

/// The row that is normalised, of type S, and behind it the gate.
template <GateKind kGate, class S, class T, class W>
MUDNN_INLINE void rms_norm_row(const NormProblem& problem, int64_t row, const S* x, double squares, const T* gate) {
  const int64_t n = problem.columns;
  T* out = row_of<T>(problem.out, row);
  const W* weight = static_cast<const W*>(problem.weight);
  const double rstd = 1 / ::sqrt(squares / static_cast<double>(n) + problem.eps);
  store_statistic(problem.statistics_dtype, problem.rstd, row, rstd);
  const Vec scale = splat(static_cast<float>(rstd));
  const Vec offset = splat(problem.weight_offset);
  const auto write = [&](auto weighted, auto shifted) {
    for_vectors(n, [&](int64_t i, int count) {
      Vec y = load_up_to(x + i, count) * scale;
      if constexpr (weighted.value) {
        Vec factor = load_up_to(weight + i, count);
        if constexpr (shifted.value) {
          factor = factor + offset;
        }
        y = y * factor;
      }
      if constexpr (kGate != GateKind::kNone) {
        y = gated<kGate, sizeof(T) == 2>(y, load_up_to(gate + i, count));
      }
      store_up_to(out + i, y, count);
    });
  };
  if (weight == nullptr) {
    write(Flag<false>{}, Flag<false>{});
  } else if (problem.weight_offset == 0) {
    write(Flag<true>{}, Flag<false>{});
  } else {
    write(Flag<true>{}, Flag<true>{});
  }
}

template <GateKind kGate, class T, class W>
MUDNN_INLINE void rms_norm_gated_row(const NormProblem& problem, int64_t row) {
  const int64_t n = problem.columns;
  const T* x = row_of<T>(problem.x, row);
  const T* gate = row_of<T>(problem.gate, row);
  if (!problem.gate_first) {
    rms_norm_row<kGate, T, T, W>(problem, row, x, sum_of_squares(x, n), gate);
    return;
  }
  float* product = static_cast<float*>(scratch(0, static_cast<size_t>(n) * sizeof(float)));
  const double squares = sum_over(n, [&](Vec sum, int64_t i, int count) {
    const Vec v = gated<kGate, sizeof(T) == 2>(load_up_to(x + i, count), load_up_to(gate + i, count));
    store_up_to(product + i, v, count);
    return fma(v, v, sum);
  });
  rms_norm_row<GateKind::kNone, float, T, W>(problem, row, product, squares, nullptr);
}

template <class T, class W>
MUDNN_INLINE void rms_norm_plain_row(const NormProblem& problem, int64_t row) {
  const int64_t n = problem.columns;
  const T* x = row_of<T>(problem.x, row);
  if (problem.residual.data == nullptr) {
    rms_norm_row<GateKind::kNone, T, T, W>(problem, row, x, sum_of_squares(x, n), nullptr);
    return;
  }
  const T* residual = row_of<T>(problem.residual, row);
  T* total = row_of<T>(problem.sum, row);
  for_vectors(n, [&](int64_t i, int count) {
    store_up_to(total + i, load_up_to(x + i, count) + load_up_to(residual + i, count), count);
  });
  rms_norm_row<GateKind::kNone, T, T, W>(problem, row, total, sum_of_squares(total, n), nullptr);
}

void layer_norm(const NormProblem& problem, int64_t begin, int64_t end) {
  for_dtypes(problem.dtype, problem.weight_dtype, [&](auto element, auto weight) {
    for (int64_t row = begin; row < end; ++row) {
      layer_norm_row<decltype(element), decltype(weight)>(problem, row);
    }
  });
}

void rms_norm(const NormProblem& problem, int64_t begin, int64_t end) {
  for_dtypes(problem.dtype, problem.weight_dtype, [&](auto element, auto weight) {
    using T = decltype(element);
    using W = decltype(weight);
    switch (problem.gate_kind) {
      case GateKind::kNone:
        for (int64_t row = begin; row < end; ++row) {
          rms_norm_plain_row<T, W>(problem, row);
        }
        break;
      case GateKind::kSilu:
        for (int64_t row = begin; row < end; ++row) {
          rms_norm_gated_row<GateKind::kSilu, T, W>(problem, row);
        }
        break;
      case GateKind::kSigmoid:
        for (int64_t row = begin; row < end; ++row) {
          rms_norm_gated_row<GateKind::kSigmoid, T, W>(problem, row);
        }
        break;
    }
  });
}

template <class T, class W>
MUDNN_INLINE void rms_norm_backward_row(const RmsNormBackwardProblem& problem, int64_t row, float* partial) {
  const int64_t n = problem.columns;
  const T* grad = static_cast<const T*>(problem.grad) + row * n;
  const T* x = static_cast<const T*>(problem.x) + row * n;
  const W* weight = static_cast<const W*>(problem.weight);
  const Vec rstd = splat(problem.rstd[row]);
  if (partial != nullptr) {
    for_vectors(n, [&](int64_t i, int count) {
      const Vec normed = load_up_to(x + i, count) * rstd;
      store_up_to(partial + i, fma(load_up_to(grad + i, count), normed, load_up_to(partial + i, count)), count);
    });
  }
  if (problem.grad_x == nullptr) {
    return;
  }
  T* grad_x = static_cast<T*>(problem.grad_x) + row * n;
  for_flag(weight != nullptr, [&](auto weighted) {
    const auto weighted_grad = [&](int64_t i, int count) {
      const Vec g = load_up_to(grad + i, count);
      if constexpr (weighted.value) {
        return g * load_up_to(weight + i, count);
      } else {
        return g;
      }
    };
    const double product = sum_over(n, [&](Vec sum, int64_t i, int count) {
      return fma(weighted_grad(i, count), load_up_to(x + i, count) * rstd, sum);
    });
    const Vec mean = splat(static_cast<float>(product / static_cast<double>(n)));
    for_vectors(n, [&](int64_t i, int count) {
      const Vec normed = load_up_to(x + i, count) * rstd;
      store_up_to(grad_x + i, rstd * (weighted_grad(i, count) - normed * mean), count);
    });
  });
}

void rms_norm_backward(const RmsNormBackwardProblem& problem, int64_t begin, int64_t end, float* partial) {
  if (partial != nullptr) {
    memset(partial, 0, static_cast<size_t>(problem.columns) * sizeof(float));
  }
  for_dtypes(problem.dtype, problem.weight_dtype, [&](auto element, auto weight) {
    for (int64_t row = begin; row < end; ++row) {
      rms_norm_backward_row<decltype(element), decltype(weight)>(problem, row, partial);
    }
  });
}

void rms_norm_weight(const RmsNormBackwardProblem& problem, int64_t begin, int64_t end) {
  const int64_t partials = rms_norm_partials(problem.rows);
  for_dtype(problem.weight_dtype, [&](auto element) {
    auto* to = static_cast<decltype(element)*>(problem.grad_weight) + begin;
    for_vectors(end - begin, [&](int64_t i, int count) {
      Vec sum = zero();
      for (int64_t part = 0; part < partials; ++part) {
        sum = sum + load_up_to(problem.partial + part * problem.columns + begin + i, count);
      }
      store_up_to(to + i, sum, count);
    });
  });
}

}  // namespace

MUDNN_TABLE(NormKernels, norm) = {layer_norm, rms_norm, rms_norm_backward, rms_norm_weight};

}  // namespace mudnn
