// Sums along a row, the same for any length of vectors' unrolling: in float32 over blocks, and of the blocks in
// float64.
#pragma once

#include "mudnn/kernels/vec.h"

namespace mudnn {
namespace {

constexpr int64_t kSumBlock = 4096;

/// step(sum, i, count) adds the elements i .. i + count to one of several sums and returns it.
template <class Step>
MUDNN_INLINE double sum_over(int64_t n, Step&& step) {
  constexpr int64_t kLanes = Vec::kLanes;
  double total = 0;
  for (int64_t start = 0; start < n; start += kSumBlock) {
    const int64_t end = start + kSumBlock < n ? start + kSumBlock : n;
    Vec a = zero(), b = zero(), c = zero(), d = zero();
    int64_t i = start;
    for (; i + 4 * kLanes <= end; i += 4 * kLanes) {
      a = step(a, i, int{Vec::kLanes});
      b = step(b, i + kLanes, int{Vec::kLanes});
      c = step(c, i + 2 * kLanes, int{Vec::kLanes});
      d = step(d, i + 3 * kLanes, int{Vec::kLanes});
    }
    for (; i + kLanes <= end; i += kLanes) {
      a = step(a, i, int{Vec::kLanes});
    }
    if (i < end) {
      b = step(b, i, static_cast<int>(end - i));
    }
    total += reduce_add((a + b) + (c + d));
  }
  return total;
}

/// load_up_to where the elements behind the end count as `filler`.
template <class T>
MUDNN_INLINE Vec load_filled(const T* p, int count, Vec filler) {
  if (count == Vec::kLanes) {
    return load(p);
  }
  float lanes[Vec::kLanes];
  store(lanes, filler);
  store_part(lanes, load_part(p, count), count);
  return load(lanes);
}

}  // namespace
}  // namespace mudnn
