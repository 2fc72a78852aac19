// Products of tiles for attention: panels in the order in which multiply-adds read them, of float32 or, where the CPU
// multiplies bfloat16, of pairs of these.
#pragma once

#include "mudnn/kernels/attention_math.h"
#include "mudnn/kernels/transpose.h"

namespace mudnn {
namespace {

constexpr int kTileRows = 6;
constexpr int kPanelVecs = MUDNN_LEVEL == 2 ? 4 : 2;
constexpr int kPanel = kPanelVecs * Vec::kLanes;

/// Operands as float32: one step of a product takes one number of each row.
struct Floats {
  using Item = float;
  static constexpr int kDepth = 1;
  static constexpr int kDegree = 7;
  using Element = float;
  static MUDNN_INLINE void multiply_add(Vec& sum, Vec left, Vec right) { sum = fma(left, right, sum); }
  static MUDNN_INLINE Vec broadcast(const float* p) { return splat(*p); }
  static MUDNN_INLINE Vec read(const float* p) { return load(p); }
};

#if MUDNN_LEVEL == 2
/// Operands as bfloat16: one step takes a pair of neighbours.
struct Pairs {
  using Item = uint32_t;
  static constexpr int kDepth = 2;
  static constexpr int kDegree = 4;
  using Element = Bfloat16;
  static MUDNN_INLINE void multiply_add(Vec& sum, Vec left, Vec right) {
    sum.v = _mm512_dpbf16_ps(sum.v, reinterpret_cast<__m512bh>(left.v), reinterpret_cast<__m512bh>(right.v));
  }
  static MUDNN_INLINE Vec broadcast(const uint32_t* p) {
    return {_mm512_castsi512_ps(_mm512_set1_epi32(static_cast<int>(*p)))};
  }
  static MUDNN_INLINE Vec read(const uint32_t* p) { return {_mm512_loadu_ps(p)}; }
};
#endif

/// Item (row, step) of a left operand: rows `lda` apart or, read across, steps `lda` apart.
template <bool Across, class Item>
MUDNN_INLINE const Item* left_item(const Item* a, int64_t lda, int64_t row, int64_t step) {
  return Across ? a + step * lda + row : a + row * lda + step;
}

/// c = a b, or c = factor c + a b with a factor per row. a: kTileRows rows of `steps` items (left_item); b: `steps`
/// rows of Vecs vectors, `ldb` items apart; c: rows `ldc` apart.
template <class Kind, bool Across, int Vecs>
inline void tile_product(
    const typename Kind::Item* a, int64_t lda, const typename Kind::Item* b, int64_t ldb, int64_t steps, float* c,
    int64_t ldc, const float* factors) {
  Vec sums[kTileRows][Vecs];
#pragma GCC unroll 6
  for (int r = 0; r < kTileRows; ++r) {
#pragma GCC unroll 4
    for (int v = 0; v < Vecs; ++v) {
      sums[r][v] = zero();
    }
  }
  for (int64_t k = 0; k < steps; ++k) {
    Vec right[Vecs];
#pragma GCC unroll 4
    for (int v = 0; v < Vecs; ++v) {
      right[v] = Kind::read(b + k * ldb + v * Vec::kLanes);
    }
#pragma GCC unroll 6
    for (int r = 0; r < kTileRows; ++r) {
      const Vec left = Kind::broadcast(left_item<Across>(a, lda, r, k));
#pragma GCC unroll 4
      for (int v = 0; v < Vecs; ++v) {
        Kind::multiply_add(sums[r][v], left, right[v]);
      }
    }
  }
#pragma GCC unroll 6
  for (int r = 0; r < kTileRows; ++r) {
#pragma GCC unroll 4
    for (int v = 0; v < Vecs; ++v) {
      float* to = c + r * ldc + v * Vec::kLanes;
      store(to, factors == nullptr ? sums[r][v] : fma(load(to), splat(factors[r]), sums[r][v]));
    }
  }
}

/// The same for `rows` rows (a multiple of kTileRows) and `vecs` vectors (1 .. kPanelVecs).
template <class Kind, bool Across>
inline void panel_product(
    int64_t rows, int64_t vecs, const typename Kind::Item* a, int64_t lda, const typename Kind::Item* b, int64_t ldb,
    int64_t steps, float* c, int64_t ldc, const float* factors) {
  for (int64_t r = 0; r < rows; r += kTileRows) {
    const float* f = factors == nullptr ? nullptr : factors + r;
    const typename Kind::Item* rows_from = left_item<Across>(a, lda, r, 0);
    switch (vecs) {
      case 1:
        tile_product<Kind, Across, 1>(rows_from, lda, b, ldb, steps, c + r * ldc, ldc, f);
        break;
      case 2:
        tile_product<Kind, Across, 2>(rows_from, lda, b, ldb, steps, c + r * ldc, ldc, f);
        break;
#if MUDNN_LEVEL == 2
      case 3:
        tile_product<Kind, Across, 3>(rows_from, lda, b, ldb, steps, c + r * ldc, ldc, f);
        break;
      case 4:
        tile_product<Kind, Across, 4>(rows_from, lda, b, ldb, steps, c + r * ldc, ldc, f);
        break;
#endif
      default:
        break;
    }
  }
}

/// Columns of panels: c[rows x columns] (+)= a b, where b's panels of kPanel columns hold `steps` rows each and follow
/// each other. c must have room for columns rounded up to vectors.
template <class Kind, bool Across = false>
inline void wide_product(
    int64_t rows, int64_t columns, const typename Kind::Item* a, int64_t lda, const typename Kind::Item* b,
    int64_t panel_steps, int64_t steps, float* c, int64_t ldc, const float* factors) {
  for (int64_t first = 0; first < columns; first += kPanel) {
    const int64_t vecs = at_most(kPanelVecs, (columns - first + Vec::kLanes - 1) / Vec::kLanes);
    panel_product<Kind, Across>(rows, vecs, a, lda, b + first * panel_steps, kPanel, steps, c + first, ldc, factors);
  }
}

// Factors that add, for as many rows as a product has.
constexpr int kMostRows = 192;
struct Ones {
  float factors[kMostRows];
  constexpr Ones() : factors() {
    for (float& factor : factors) {
      factor = 1;
    }
  }
};
constexpr Ones kOnes;

/// wide_product over all of the panels' steps. float32 sums are taken in parts: the errors of a long chain add up.
template <class Kind>
inline void score_product(
    int64_t rows, int64_t columns, const typename Kind::Item* a, int64_t lda, const typename Kind::Item* b,
    int64_t steps, float* c, int64_t ldc) {
  const int64_t part = Kind::kDepth == 2 ? steps : MUDNN_LEVEL == 2 ? 64 : 32;
  for (int64_t k = 0; k < steps; k += part) {
    wide_product<Kind>(
        rows, columns, a + k, lda, b + k * kPanel, steps, at_most(part, steps - k), c, ldc,
        k == 0 ? nullptr : kOnes.factors);
  }
}

template <class Kind>
MUDNN_INLINE int64_t steps_of(int64_t depth) {
  return (depth + Kind::kDepth - 1) / Kind::kDepth;
}

/// Rows as the left operand: each of `depth` elements becomes steps_of(depth) items; `padded` - `rows` rows of zeros
/// follow.
template <class Kind, class T>
inline void copy_left(
    typename Kind::Item* to, const T* from, int64_t row_stride, int64_t rows, int64_t padded, int64_t depth) {
  const int64_t steps = steps_of<Kind>(depth);
  for (int64_t r = 0; r < padded; ++r) {
    typename Kind::Item* row = to + r * steps;
    if (r >= rows) {
      memset(row, 0, static_cast<size_t>(steps) * sizeof *row);
    } else if constexpr (Kind::kDepth == 2) {
      row[steps - 1] = 0;
      memcpy(row, from + r * row_stride, static_cast<size_t>(depth) * sizeof(T));
    } else {
      for_vectors(depth, [&](int64_t i, int count) {
        store_up_to(row + i, load_up_to(from + r * row_stride + i, count), count);
      });
    }
  }
}

/// Rows as columns of the right operand: `rows` rows of `depth` elements, rounded up to panels with zeros. A panel
/// holds steps_of(depth) rows of kPanel items.
template <class Kind, class T>
inline void pack_transposed(typename Kind::Item* to, const T* from, int64_t row_stride, int64_t rows, int64_t depth) {
  const int64_t steps = steps_of<Kind>(depth);
  const int64_t padded = round_up(rows, kPanel);
#if MUDNN_LEVEL == 2
  for (int64_t r = 0; r < padded; r += 16) {
    typename Kind::Item* panel = to + r / kPanel * (kPanel * steps) + r % kPanel;
    for (int64_t k = 0; k < steps; k += 16) {
      __m512i block[16];
      const int64_t left = at_most(16 * Kind::kDepth, depth - k * Kind::kDepth);
      if constexpr (Kind::kDepth == 2) {
        const __mmask32 mask = left >= 32 ? ~__mmask32{0} : (__mmask32{1} << left) - 1;
#pragma GCC unroll 16
        for (int i = 0; i < 16; ++i) {
          block[i] = r + i < rows ? _mm512_maskz_loadu_epi16(mask, from + (r + i) * row_stride + k * 2)
                                  : _mm512_setzero_si512();
        }
      } else {
#pragma GCC unroll 16
        for (int i = 0; i < 16; ++i) {
          block[i] = r + i < rows
              ? _mm512_castps_si512(load_up_to(from + (r + i) * row_stride + k, static_cast<int>(left)).v)
              : _mm512_setzero_si512();
        }
      }
      transpose(block);
      const int64_t count = at_most(16, steps - k);
      if (count == 16) {
#pragma GCC unroll 16
        for (int i = 0; i < 16; ++i) {
          _mm512_storeu_si512(panel + (k + i) * kPanel, block[i]);
        }
      } else {
        alignas(64) typename Kind::Item spare[16][16];
#pragma GCC unroll 16
        for (int i = 0; i < 16; ++i) {
          _mm512_store_si512(spare[i], block[i]);
        }
        for (int64_t i = 0; i < count; ++i) {
          memcpy(panel + (k + i) * kPanel, spare[i], 64);
        }
      }
    }
  }
#else
  for (int64_t r = 0; r < padded; ++r) {
    float* column = to + r / kPanel * (kPanel * steps) + r % kPanel;
    if (r >= rows) {
      for (int64_t k = 0; k < steps; ++k) {
        column[k * kPanel] = 0;
      }
      continue;
    }
    for_vectors(depth, [&](int64_t k, int count) {
      float numbers[Vec::kLanes];
      store(numbers, load_up_to(from + r * row_stride + k, count));
      for (int i = 0; i < count; ++i) {
        column[(k + i) * kPanel] = numbers[i];
      }
    });
  }
#endif
}

/// Rows as rows of the right operand: `rows` rows of `columns` elements. Panels of `room` / kDepth steps follow each
/// other; steps from `rows` to `room` are zeros.
template <class Kind, class T>
inline void pack_straight(
    typename Kind::Item* to, const T* from, int64_t row_stride, int64_t rows, int64_t columns, int64_t room) {
  const int64_t steps = steps_of<Kind>(room);
  for (int64_t c = 0; c < columns; c += Vec::kLanes) {
    typename Kind::Item* panel = to + c / kPanel * (kPanel * steps) + c % kPanel;
    const int count = static_cast<int>(at_most(Vec::kLanes, columns - c));
    for (int64_t k = 0; k < steps; ++k) {
      if constexpr (Kind::kDepth == 1) {
        store(panel + k * kPanel, k < rows ? load_up_to(from + k * row_stride + c, count) : zero());
      } else {
#if MUDNN_LEVEL == 2
        const __mmask16 mask = first_lanes(count);
        const T* row = from + 2 * k * row_stride + c;
        const __m512i low =
            2 * k < rows ? _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(mask, row)) : _mm512_setzero_si512();
        const __m512i high = 2 * k + 1 < rows ? _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(mask, row + row_stride))
                                              : _mm512_setzero_si512();
        _mm512_storeu_si512(panel + k * kPanel, _mm512_or_si512(low, _mm512_slli_epi32(high, 16)));
#endif
      }
    }
  }
}

/// Numbers as a row of the left operand, `n` rounded up to whole vectors.
template <class Kind>
MUDNN_INLINE void store_left(typename Kind::Item* row, int64_t i, Vec v) {
  if constexpr (Kind::kDepth == 1) {
    store(row + i, v);
  } else {
#if MUDNN_LEVEL == 2
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(row + i / 2), reinterpret_cast<__m256i>(_mm512_cvtneps_pbh(v.v)));
#endif
  }
}

}  // namespace
}  // namespace mudnn
