#include "mudnn/rotary.h"

#include "mudnn/kernels/angles.h"
#include "mudnn/kernels/dtypes.h"
#include "mudnn/kernels/vec.h"
#include "mudnn/scratch.h"

namespace mudnn {
namespace {

template <class A>
void load_angles_of(const RotaryProblem& problem, int64_t index, Angles angles) {
  const int64_t row = problem.positions != nullptr
      ? problem.positions[index] * problem.angle_token
      : index / problem.tokens * problem.angle_batch + index % problem.tokens * problem.angle_token;
  load_angles(
      static_cast<const A*>(problem.cos) + row, static_cast<const A*>(problem.sin) + row, problem.rotary_dim / 2,
      problem.interleaved, problem.whole, angles);
}

template <class T>
struct Heads {
  const T* in;
  T* out;
  int64_t count;
  int64_t in_stride;
  int64_t out_stride;
};

/// More would leave the order in which memory is read best.
constexpr int64_t kHeadsAtOnce = 4;

/// Some heads of a token; a part of all of them at a time, so that its angles stay in registers.
template <bool kInterleaved, class T>
MUDNN_INLINE void rotate_heads(const RotaryProblem& problem, const Heads<T>& heads, Angles angles) {
  const int64_t rotated = problem.rotary_dim;
  if constexpr (kInterleaved) {
    for_vectors(rotated, [&](int64_t i, int count) {
      const Vec cos = load_up_to(angles.cos + i, count);
      const Vec sin = load_up_to(angles.sin + i, count);
      const T* in = heads.in + i;
      T* out = heads.out + i;
      for (int64_t head = 0; head < heads.count; ++head) {
        const Vec x = load_up_to(in, count);
        store_up_to(out, fma(x, cos, swapped_pairs(x) * sin), count);
        in += heads.in_stride;
        out += heads.out_stride;
      }
    });
  } else {
    const int64_t half = rotated / 2;
    for_vectors(half, [&](int64_t i, int count) {
      const Vec cos = load_up_to(angles.cos + i, count);
      const Vec sin = load_up_to(angles.sin + i, count);
      const Vec second_cos = load_up_to(angles.cos + half + i, count);
      const Vec second_sin = load_up_to(angles.sin + half + i, count);
      const T* in = heads.in + i;
      T* out = heads.out + i;
      for (int64_t head = 0; head < heads.count; ++head) {
        const Vec a = load_up_to(in, count);
        const Vec b = load_up_to(in + half, count);
        store_up_to(out, fma(a, cos, b * sin), count);
        store_up_to(out + half, fma(b, second_cos, a * second_sin), count);
        in += heads.in_stride;
        out += heads.out_stride;
      }
    });
  }
  if (heads.in != heads.out && rotated < problem.head_dim) {
    for (int64_t head = 0; head < heads.count; ++head) {
      memcpy(
          heads.out + head * heads.out_stride + rotated, heads.in + head * heads.in_stride + rotated,
          static_cast<size_t>(problem.head_dim - rotated) * sizeof(T));
    }
  }
}

template <bool kInterleaved, class T>
void rotate_tokens(const RotaryProblem& problem, int64_t begin, int64_t end) {
  const auto rotated = static_cast<size_t>(problem.rotary_dim);
  float* memory = static_cast<float*>(scratch(0, 2 * rotated * sizeof(float)));
  const Angles angles{memory, memory + rotated};
  for (int64_t index = begin; index < end; ++index) {
    for_dtype(problem.angle_dtype, [&](auto angle) { load_angles_of<decltype(angle)>(problem, index, angles); });
    const int64_t batch = index / problem.tokens;
    const int64_t token = index % problem.tokens;
    for (const RotaryHeads& side : problem.sides) {
      const T* in = static_cast<const T*>(side.in) + batch * side.in_batch + token * side.in_token;
      T* out = static_cast<T*>(side.out) + batch * side.out_batch + token * side.out_token;
      for (int64_t head = 0; head < side.heads; head += kHeadsAtOnce) {
        const int64_t count = side.heads - head < kHeadsAtOnce ? side.heads - head : kHeadsAtOnce;
        rotate_heads<kInterleaved, T>(
            problem, {in + head * side.in_head, out + head * side.out_head, count, side.in_head, side.out_head},
            angles);
      }
    }
  }
}

void rotate(const RotaryProblem& problem, int64_t begin, int64_t end) {
  for_dtype(problem.dtype, [&](auto element) {
    if (problem.interleaved) {
      rotate_tokens<true, decltype(element)>(problem, begin, end);
    } else {
      rotate_tokens<false, decltype(element)>(problem, begin, end);
    }
  });
}

}  // namespace

MUDNN_TABLE(RotaryKernels, rotary) = {rotate};

}  // namespace mudnn
