#include "mudnn/routing.h"

#include "mudnn/kernels/dtypes.h"
#include "mudnn/kernels/top_k.h"
#include "mudnn/kernels/vec.h"
#include "mudnn/scratch.h"

namespace mudnn {
namespace {

/// Up to the next cache line.
MUDNN_INLINE size_t rounded_bytes(size_t bytes) { return (bytes + 63) / 64 * 64; }

template <class T>
void top_k_rows(const TopKProblem& problem, int64_t begin, int64_t end) {
  const int64_t n = problem.columns;
  const int64_t k = problem.k;
  const size_t row_bytes = rounded_bytes(static_cast<size_t>(n) * sizeof(float));
  const size_t kept_bytes = rounded_bytes(static_cast<size_t>(k) * sizeof(float));
  char* memory = static_cast<char*>(scratch(3, row_bytes + 2 * kept_bytes + top_k_room_bytes(n)));
  auto* wide = reinterpret_cast<float*>(memory);
  auto* best = reinterpret_cast<int32_t*>(memory + row_bytes);
  auto* kept = reinterpret_cast<float*>(memory + row_bytes + kept_bytes);
  const TopKRoom room = top_k_room(memory + row_bytes + 2 * kept_bytes, n);
  for (int64_t row = begin; row < end; ++row) {
    const T* values = static_cast<const T*>(problem.row_values) + row * problem.row_stride;
    for_vectors(n, [&](int64_t i, int count) { store_up_to(wide + i, load_up_to(values + i, count), count); });
    top_k_of(wide, n, k, room, best, kept);
    T* out = static_cast<T*>(problem.values) + row * k;
    for (int64_t j = 0; j < k; ++j) {
      out[j] = values[best[j]];
      problem.ids[row * k + j] = best[j];
    }
  }
}

void top_k_dispatch(const TopKProblem& problem, int64_t begin, int64_t end) {
  for_dtype(problem.dtype, [&](auto element) { top_k_rows<decltype(element)>(problem, begin, end); });
}

/// The sum of the `group_best` best of a group.
inline float group_score(const float* choice, int64_t size, int64_t group_best) {
  float first = choice[0];
  float second = -__builtin_inff();
  for (int64_t i = 1; i < size; ++i) {
    const float value = choice[i];
    if (comes_before(value, first)) {
      second = first;
      first = value;
    } else if (comes_before(value, second)) {
      second = value;
    }
  }
  return group_best == 1 ? first : first + second;
}

void route_rows(const RoutingProblem& problem, int64_t begin, int64_t end) {
  const int64_t n = problem.experts;
  const int64_t k = problem.k;
  const int64_t groups = problem.groups;
  const size_t row_bytes = rounded_bytes(static_cast<size_t>(n) * sizeof(float));
  char* memory = static_cast<char*>(scratch(3, 5 * row_bytes + top_k_room_bytes(n)));
  auto* choice = reinterpret_cast<float*>(memory);
  auto* best = reinterpret_cast<int32_t*>(memory + row_bytes);
  auto* kept = reinterpret_cast<float*>(memory + 2 * row_bytes);
  auto* group_values = reinterpret_cast<float*>(memory + 3 * row_bytes);
  auto* group_chosen = reinterpret_cast<float*>(memory + 4 * row_bytes);
  const TopKRoom room = top_k_room(memory + 5 * row_bytes, n);
  const bool limited = problem.top_groups < groups;
  const int64_t group_size = n / groups;
  for (int64_t row = begin; row < end; ++row) {
    const float* scores = problem.scores + row * n;
    const float* chosen_by = scores;
    if (problem.bias != nullptr || limited) {
      for_vectors(n, [&](int64_t i, int count) {
        Vec v = load_up_to(scores + i, count);
        if (problem.bias != nullptr) {
          v = v + load_up_to(problem.bias + i, count);
        }
        store_up_to(choice + i, v, count);
      });
      chosen_by = choice;
    }
    if (limited) {
      for (int64_t group = 0; group < groups; ++group) {
        group_values[group] = group_score(choice + group * group_size, group_size, problem.group_best);
        group_chosen[group] = 0;
      }
      top_k_of(group_values, groups, problem.top_groups, room, best, kept);
      for (int64_t j = 0; j < problem.top_groups; ++j) {
        group_chosen[best[j]] = 1;
      }
      for (int64_t group = 0; group < groups; ++group) {
        for (int64_t i = 0; group_chosen[group] == 0 && i < group_size; ++i) {
          choice[group * group_size + i] = -__builtin_inff();
        }
      }
    }
    top_k_of(chosen_by, n, k, room, best, kept);
    float sum = 0;
    for (int64_t j = 0; j < k; ++j) {
      sum += scores[best[j]];
    }
    const float factor = problem.renormalize ? problem.scaling / (sum + 1e-20f) : problem.scaling;
    for (int64_t j = 0; j < k; ++j) {
      problem.weights[row * k + j] = scores[best[j]] * factor;
      problem.ids[row * k + j] = best[j];
    }
  }
}

}  // namespace

MUDNN_TABLE(RoutingKernels, routing) = {top_k_dispatch, route_rows};

}  // namespace mudnn
