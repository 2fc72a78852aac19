#include "mudnn/qkv.h"

#include "mudnn/kernels/angles.h"
#include "mudnn/kernels/dtypes.h"
#include "mudnn/kernels/rows.h"
#include "mudnn/kernels/squares.h"
#include "mudnn/scratch.h"

namespace mudnn {
namespace {

/// Factors of the elements of normalised heads: of the rotated ones (their weight times cos, their partner's weight
/// times sin), and the weight itself for the others.
struct Factors {
  Angles angles;
  float* weight;
};

struct Workspace {
  Angles angles;  // of the token
  Factors q;
  Factors k;
  float* scales;  // of its heads: queries, then keys
};

Workspace take_workspace(const QkvProblem& problem) {
  const int64_t dim = problem.head_dim;
  const int64_t rotated = problem.rotary_dim;
  const int64_t heads = problem.heads + problem.kv_heads;
  float* next = static_cast<float*>(scratch(0, static_cast<size_t>(6 * rotated + 2 * dim + heads) * sizeof(float)));
  const auto take = [&](int64_t count) {
    float* taken = next;
    next += count;
    return taken;
  };
  Workspace space;
  space.angles = {take(rotated), take(rotated)};
  space.q = {{take(rotated), take(rotated)}, take(dim)};
  space.k = {{take(rotated), take(rotated)}, take(dim)};
  space.scales = take(heads);
  return space;
}

template <class W>
void load_weight(const void* weight, float offset, int64_t n, float* to) {
  const W* from = static_cast<const W*>(weight);
  for_vectors(n, [&](int64_t i, int count) {
    store_up_to(to + i, from == nullptr ? splat(1.0f) : load_up_to(from + i, count) + splat(offset), count);
  });
}

/// factors.angles = angles times the weights of the elements that they multiply.
MUDNN_INLINE void weigh_angles(const QkvProblem& problem, Angles angles, const Factors& factors) {
  const float* weight = factors.weight;
  const int64_t half = problem.rotary_dim / 2;
  for_vectors(problem.rotary_dim, [&](int64_t i, int count) {
    store_up_to(factors.angles.cos + i, load_up_to(angles.cos + i, count) * load_up_to(weight + i, count), count);
  });
  if (problem.interleaved) {
    for_vectors(problem.rotary_dim, [&](int64_t i, int count) {
      const Vec partner = swapped_pairs(load_up_to(weight + i, count));
      store_up_to(factors.angles.sin + i, load_up_to(angles.sin + i, count) * partner, count);
    });
    return;
  }
  for_vectors(half, [&](int64_t i, int count) {
    const Vec first = load_up_to(weight + i, count);
    const Vec second = load_up_to(weight + half + i, count);
    store_up_to(factors.angles.sin + i, load_up_to(angles.sin + i, count) * second, count);
    store_up_to(factors.angles.sin + half + i, load_up_to(angles.sin + half + i, count) * first, count);
  });
}

/// scales[h] = 1 / root of the mean square of head h, or 1.
template <class T>
MUDNN_INLINE void scales_of(const QkvProblem& problem, const T* x, int64_t heads, bool normalise, float* scales) {
  if (!normalise) {
    for_vectors(heads, [&](int64_t i, int count) { store_up_to(scales + i, splat(1.0f), count); });
    return;
  }
  for (int64_t head = 0; head < heads; ++head) {
    scales[head] = static_cast<float>(sum_of_squares(x + head * problem.head_dim, problem.head_dim));
  }
  const Vec share = splat(static_cast<float>(1 / static_cast<double>(problem.head_dim)));
  const Vec eps = splat(static_cast<float>(problem.eps));
  for_vectors(heads, [&](int64_t i, int count) {
    store_up_to(scales + i, splat(1.0f) / sqrt(fma(load_up_to(scales + i, count), share, eps)), count);
  });
}

/// More would leave the order in which memory is read best.
constexpr int64_t kHeadsAtOnce = 4;

/// Up to kHeadsAtOnce heads; a part of all of them at a time, so that its factors stay in registers.
template <bool kInterleaved, class T>
MUDNN_INLINE void write_heads(
    const QkvProblem& problem, const T* x, T* out, int64_t heads, const Factors& factors, const float* scales) {
  const int64_t dim = problem.head_dim;
  const int64_t rotated = problem.rotary_dim;
  const Angles angles = factors.angles;
  if constexpr (kInterleaved) {
    for_vectors(rotated, [&](int64_t i, int count) {
      const Vec cos = load_up_to(angles.cos + i, count);
      const Vec sin = load_up_to(angles.sin + i, count);
      for (int64_t head = 0; head < heads; ++head) {
        const Vec a = load_up_to(x + head * dim + i, count) * splat(scales[head]);
        store_up_to(out + head * dim + i, fma(a, cos, swapped_pairs(a) * sin), count);
      }
    });
  } else {
    const int64_t half = rotated / 2;
    for_vectors(half, [&](int64_t i, int count) {
      const Vec cos = load_up_to(angles.cos + i, count);
      const Vec sin = load_up_to(angles.sin + i, count);
      const Vec second_cos = load_up_to(angles.cos + half + i, count);
      const Vec second_sin = load_up_to(angles.sin + half + i, count);
      for (int64_t head = 0; head < heads; ++head) {
        const Vec scale = splat(scales[head]);
        const Vec a = load_up_to(x + head * dim + i, count) * scale;
        const Vec b = load_up_to(x + head * dim + half + i, count) * scale;
        store_up_to(out + head * dim + i, fma(a, cos, b * sin), count);
        store_up_to(out + head * dim + half + i, fma(b, second_cos, a * second_sin), count);
      }
    });
  }
  if (rotated < dim) {
    for_vectors(dim - rotated, [&](int64_t i, int count) {
      const Vec weight = load_up_to(factors.weight + rotated + i, count);
      for (int64_t head = 0; head < heads; ++head) {
        const int64_t at = head * dim + rotated + i;
        store_up_to(out + at, load_up_to(x + at, count) * splat(scales[head]) * weight, count);
      }
    });
  }
}

template <bool kInterleaved, class T>
MUDNN_INLINE void write_side(
    const QkvProblem& problem, const T* x, T* out, int64_t heads, const Factors& factors, const float* scales) {
  const int64_t dim = problem.head_dim;
  for (int64_t head = 0; head < heads; head += kHeadsAtOnce) {
    const int64_t count = heads - head < kHeadsAtOnce ? heads - head : kHeadsAtOnce;
    write_heads<kInterleaved>(problem, x + head * dim, out + head * dim, count, factors, scales + head);
  }
}

/// A token's keys and values [kv_heads, head_dim] into its slot.
template <class T>
MUDNN_INLINE void write_slot(const QkvProblem& problem, int64_t slot, const T* k, const T* v) {
  constexpr bool kPaired = sizeof(T) == 2;
  const int64_t dim = problem.head_dim;
  const int64_t position = slot % problem.pages.page_size;
  const int64_t token = position % kPageBlock;
  for (int64_t head = 0; head < problem.kv_heads; ++head) {
    const int64_t block = page_block(problem.pages, slot / problem.pages.page_size, head, position);
    T* keys = static_cast<T*>(problem.key_pages) + block;
    T* values = static_cast<T*>(problem.value_pages) + block;
    const T* key = k + head * dim;
    const T* value = v + head * dim;
    if constexpr (kPaired) {
      for (int64_t e = 0; e < dim; e += 2) {
        memcpy(keys + key_in_block(true, dim, token, e), key + e, 2 * sizeof(T));
      }
      for (int64_t e = 0; e < dim; ++e) {
        values[value_in_block(true, dim, token, e)] = value[e];
      }
    } else {
      memcpy(keys + token * dim, key, static_cast<size_t>(dim) * sizeof(T));
      memcpy(values + token * dim, value, static_cast<size_t>(dim) * sizeof(T));
    }
  }
}

template <class T>
void split_token(const QkvProblem& problem, int64_t token, const Workspace& space) {
  const int64_t dim = problem.head_dim;
  const int64_t q_size = problem.heads * dim;
  const int64_t kv_size = problem.kv_heads * dim;
  const int64_t row = (problem.positions != nullptr ? problem.positions[token] : token) * problem.angle_stride;
  for_dtype(problem.angle_dtype, [&](auto angle) {
    using A = decltype(angle);
    load_angles(
        static_cast<const A*>(problem.cos) + row, static_cast<const A*>(problem.sin) + row, problem.rotary_dim / 2,
        problem.interleaved, problem.whole, space.angles);
  });
  weigh_angles(problem, space.angles, space.q);
  weigh_angles(problem, space.angles, space.k);
  const T* x = row_of<T>(problem.qkv, token);
  float* k_scales = space.scales + problem.heads;
  scales_of(problem, x, problem.heads, problem.q_weight != nullptr, space.scales);
  scales_of(problem, x + q_size, problem.kv_heads, problem.k_weight != nullptr, k_scales);
  T* q = static_cast<T*>(problem.q) + token * q_size;
  T* k = problem.slots != nullptr ? static_cast<T*>(scratch(1, static_cast<size_t>(kv_size) * sizeof(T)))
                                  : static_cast<T*>(problem.k) + token * kv_size;
  if (problem.interleaved) {
    write_side<true>(problem, x, q, problem.heads, space.q, space.scales);
    write_side<true>(problem, x + q_size, k, problem.kv_heads, space.k, k_scales);
  } else {
    write_side<false>(problem, x, q, problem.heads, space.q, space.scales);
    write_side<false>(problem, x + q_size, k, problem.kv_heads, space.k, k_scales);
  }
  const T* v = x + q_size + kv_size;
  if (problem.slots == nullptr) {
    memcpy(static_cast<T*>(problem.v) + token * kv_size, v, static_cast<size_t>(kv_size) * sizeof(T));
  } else if (problem.slots[token] >= 0) {
    write_slot(problem, problem.slots[token], k, v);
  }
}

void split(const QkvProblem& problem, int64_t begin, int64_t end) {
  const Workspace space = take_workspace(problem);
  const auto load_weights = [&](auto weight) {
    using W = decltype(weight);
    load_weight<W>(problem.q_weight, problem.weight_offset, problem.head_dim, space.q.weight);
    load_weight<W>(problem.k_weight, problem.weight_offset, problem.head_dim, space.k.weight);
  };
  for_dtype(problem.weight_dtype, load_weights);
  for_dtype(problem.dtype, [&](auto element) {
    for (int64_t token = begin; token < end; ++token) {
      split_token<decltype(element)>(problem, token, space);
    }
  });
}

}  // namespace

MUDNN_TABLE(QkvKernels, qkv) = {split};

}  // namespace mudnn
