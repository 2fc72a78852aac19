// The k largest of one row of float32.
#pragma once

#include "mudnn/kernels/lanes.h"
#include "mudnn/kernels/vec.h"

namespace mudnn {
namespace {

constexpr int64_t kMostGroups = 128;  // of whose maxima the bound is found
constexpr int kRankedAtMost = 64;     // candidates up to which each one's rank is counted

/// Memory that top_k_of works in, for rows of n values.
struct TopKRoom {
  int32_t* ids;
  float* values;
};
MUDNN_INLINE size_t top_k_room_bytes(int64_t n) { return static_cast<size_t>(n + 2 * Vec::kLanes) * 8 + 128; }
MUDNN_INLINE TopKRoom top_k_room(void* memory, int64_t n) {
  const int64_t padded = n + 2 * Vec::kLanes;
  return {static_cast<int32_t*>(memory), static_cast<float*>(memory) + padded};
}

/// Whether a comes before b when b has the lower index.
MUDNN_INLINE bool comes_before(float a, float b) { return a > b || (a != a && b == b); }

/// The k best of `count` candidates, which come in the order of their indices, by insertion.
inline void insert_best(const int32_t* ids, const float* values, int64_t count, int64_t k, int32_t* best, float* kept) {
  int64_t size = 0;
  for (int64_t i = 0; i < count; ++i) {
    const float value = values[i];
    const int32_t id = ids[i];
    if (size == k && !comes_before(value, kept[k - 1])) {
      continue;
    }
    int64_t place = size < k ? size++ : k - 1;
    for (; place > 0 && comes_before(value, kept[place - 1]); --place) {
      kept[place] = kept[place - 1];
      best[place] = best[place - 1];
    }
    kept[place] = value;
    best[place] = id;
  }
}

/// The same where no candidate is NaN and there are at most kRankedAtMost: no branch depends on values.
inline void rank_best(const int32_t* ids, float* values, int count, int64_t k, int32_t* best, float* kept) {
  store(values + count, splat(-__builtin_inff()));
  for (int i = 0; i < count; ++i) {
    const Vec value = splat(values[i]);
    int rank = 0;
    for (int j = 0; j < count; j += Vec::kLanes) {
      const Vec others = load(values + j);
      const int before = i - j;
      const unsigned earlier = before >= Vec::kLanes ? lanes_below(Vec::kLanes) : before > 0 ? lanes_below(before) : 0u;
      rank += __builtin_popcount(lanes_greater(others, value) | (lanes_equal(others, value) & earlier));
    }
    if (rank < k) {
      best[rank] = ids[i];
      kept[rank] = values[i];
    }
  }
}

/// A number that at least k values of the row reach: the k-th largest of the maxima of disjoint groups. False when the
/// row is too short for that. The row's NaN don't count.
inline bool lower_bound(const float* row, int64_t n, int64_t k, float* bound) {
  const int64_t vectors = n / Vec::kLanes;
  int64_t wanted = (2 * k + Vec::kLanes - 1) / Vec::kLanes;
  wanted = wanted > kMostGroups / Vec::kLanes ? kMostGroups / Vec::kLanes : wanted;
  wanted = wanted > vectors ? vectors : wanted;
  const int64_t groups = wanted * Vec::kLanes;
  if (groups < k) {
    return false;
  }
  float maxima[kMostGroups];
  for (int64_t a = 0; a < wanted; ++a) {
    Vec most = splat(-__builtin_inff());
    for (int64_t j = a; j < vectors; j += wanted) {
      most = max(load(row + j * Vec::kLanes), most);
    }
    store(maxima + a * Vec::kLanes, most);
  }
  float least = __builtin_inff();
  for (int64_t i = 0; i < groups; ++i) {
    const Vec value = splat(maxima[i]);
    int greater = 0;
    for (int64_t j = 0; j < groups; j += Vec::kLanes) {
      greater += __builtin_popcount(lanes_greater(load(maxima + j), value));
    }
    least = greater < k && maxima[i] < least ? maxima[i] : least;
  }
  *bound = least;
  return true;
}

/// best[0 .. k]: the indices of the row's k largest values, kept[0 .. k]: these values. 1 <= k <= n < 2^31.
inline void top_k_of(const float* row, int64_t n, int64_t k, const TopKRoom& room, int32_t* best, float* kept) {
  float bound = -__builtin_inff();
  lower_bound(row, n, k, &bound);
  const Vec least = splat(bound);
  int64_t count = 0;
  unsigned nan = 0;
  for_vectors(n, [&](int64_t i, int lanes) {
    const Vec v = load_up_to(row + i, lanes);
    const unsigned is_nan = lanes_nan(v);
    nan |= is_nan;
    const unsigned reach = (lanes_at_least(v, least) | is_nan) & lanes_below(lanes);
    count += append_lanes(reach, v, static_cast<int32_t>(i), room.ids + count, room.values + count);
  });
  if (nan == 0 && count <= kRankedAtMost) {
    rank_best(room.ids, room.values, static_cast<int>(count), k, best, kept);
  } else {
    insert_best(room.ids, room.values, count, k, best, kept);
  }
}

}  // namespace
}  // namespace mudnn
