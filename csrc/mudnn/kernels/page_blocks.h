// Blocks of pages (mudnn/kv_pages.h) from and to rows.
#pragma once

#include "mudnn/kernels/transpose.h"
#include "mudnn/kernels/vec.h"
#include "mudnn/kv_pages.h"

namespace mudnn {
namespace {

template <class T>
constexpr bool kPaired = sizeof(T) == 2;

/// The first `count` keys of a block as rows, `stride` elements apart.
template <class T>
inline void read_keys(const T* block, int64_t dim, int64_t count, T* rows, int64_t stride) {
  if constexpr (!kPaired<T>) {
    for (int64_t t = 0; t < count; ++t) {
      memcpy(rows + t * stride, block + t * dim, static_cast<size_t>(dim) * sizeof(T));
    }
  } else {
    int64_t e = 0;
#if MUDNN_LEVEL == 2
    for (; e + 32 <= dim; e += 32) {
      __m512i r[16];
#pragma GCC unroll 16
      for (int i = 0; i < 16; ++i) {
        r[i] = _mm512_loadu_si512(block + (e / 2 + i) * 2 * kPageBlock);
      }
      transpose(r);
      if (count == kPageBlock) {
#pragma GCC unroll 16
        for (int i = 0; i < 16; ++i) {
          _mm512_storeu_si512(rows + i * stride + e, r[i]);
        }
      } else {
        alignas(64) T spare[16][32];
#pragma GCC unroll 16
        for (int i = 0; i < 16; ++i) {
          _mm512_store_si512(spare[i], r[i]);
        }
        for (int64_t i = 0; i < count; ++i) {
          memcpy(rows + i * stride + e, spare[i], 64);
        }
      }
    }
#endif
    for (int64_t t = 0; t < count; ++t) {
      for (int64_t i = e; i < dim; i += 2) {
        memcpy(rows + t * stride + i, block + key_in_block(true, dim, t, i), 4);
      }
    }
  }
}

/// The first `count` values of a block as rows, `stride` elements apart.
template <class T>
inline void read_values(const T* block, int64_t dim, int64_t count, T* rows, int64_t stride) {
  if constexpr (!kPaired<T>) {
    read_keys(block, dim, count, rows, stride);
  } else {
    for (int64_t t = 0; t < count; t += 2) {
      const T* pairs = block + t * dim;
      T* even = rows + t * stride;
      T* odd = t + 1 < count ? even + stride : nullptr;
      int64_t e = 0;
#if MUDNN_LEVEL == 2
      for (; e + 16 <= dim; e += 16) {
        const __m512i both = _mm512_loadu_si512(pairs + 2 * e);
        _mm256_storeu_si256(reinterpret_cast<__m256i*>(even + e), _mm512_cvtepi32_epi16(both));
        if (odd != nullptr) {
          _mm256_storeu_si256(reinterpret_cast<__m256i*>(odd + e), _mm512_cvtepi32_epi16(_mm512_srli_epi32(both, 16)));
        }
      }
#endif
      for (; e < dim; ++e) {
        even[e] = pairs[2 * e];
        if (odd != nullptr) {
          odd[e] = pairs[2 * e + 1];
        }
      }
    }
  }
}

/// A whole block of keys from rows.
template <class T>
inline void write_keys(T* block, int64_t dim, const T* rows, int64_t stride) {
  if constexpr (!kPaired<T>) {
    for (int64_t t = 0; t < kPageBlock; ++t) {
      memcpy(block + t * dim, rows + t * stride, static_cast<size_t>(dim) * sizeof(T));
    }
  } else {
    int64_t e = 0;
#if MUDNN_LEVEL == 2
    for (; e + 32 <= dim; e += 32) {
      __m512i r[16];
#pragma GCC unroll 16
      for (int i = 0; i < 16; ++i) {
        r[i] = _mm512_loadu_si512(rows + i * stride + e);
      }
      transpose(r);
#pragma GCC unroll 16
      for (int i = 0; i < 16; ++i) {
        _mm512_storeu_si512(block + (e / 2 + i) * 2 * kPageBlock, r[i]);
      }
    }
#endif
    for (int64_t i = e; i < dim; i += 2) {
      for (int64_t t = 0; t < kPageBlock; ++t) {
        memcpy(block + key_in_block(true, dim, t, i), rows + t * stride + i, 4);
      }
    }
  }
}

/// A whole block of values from rows.
template <class T>
inline void write_values(T* block, int64_t dim, const T* rows, int64_t stride) {
  if constexpr (!kPaired<T>) {
    write_keys(block, dim, rows, stride);
  } else {
    for (int64_t t = 0; t < kPageBlock; t += 2) {
      const T* even = rows + t * stride;
      const T* odd = even + stride;
      T* pairs = block + t * dim;
      int64_t e = 0;
#if MUDNN_LEVEL == 2
      for (; e + 16 <= dim; e += 16) {
        const __m512i low = _mm512_cvtepu16_epi32(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(even + e)));
        const __m512i high = _mm512_cvtepu16_epi32(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(odd + e)));
        _mm512_storeu_si512(pairs + 2 * e, _mm512_or_si512(low, _mm512_slli_epi32(high, 16)));
      }
#endif
      for (; e < dim; ++e) {
        pairs[2 * e] = even[e];
        pairs[2 * e + 1] = odd[e];
      }
    }
  }
}

}  // namespace
}  // namespace mudnn
