// Tiles of int8 products. Operands are packed depth first, unit (p, line) at panel[p * width + line]. With AVX-512 a
// unit is four neighbours in depth; the instruction multiplies unsigned by signed bytes, so 128 is added to the right
// operand and what that adds to a row's sums, 128 times the sum of the left row, is taken off at the end (all modulo
// 2^32: exact). Below, a unit is two numbers widened to 16 bits: the products of bytes that AVX2 has saturate.
#pragma once

#include "mudnn/kernels/transpose.h"
#include "mudnn/kernels/vec.h"
#if MUDNN_LEVEL == 0 && defined(__SSE2__)
#include <emmintrin.h>
#endif

namespace mudnn {
namespace {

#if MUDNN_LEVEL == 2
using IntVec = __m512i;
constexpr int kIntTileRows = 14;
constexpr int kUnitDepth = 4;
MUDNN_INLINE IntVec int_zero() { return _mm512_setzero_si512(); }
MUDNN_INLINE IntVec int_load(const void* p) { return _mm512_loadu_si512(p); }
MUDNN_INLINE void int_store(int32_t* p, IntVec v) { _mm512_storeu_si512(p, v); }
MUDNN_INLINE IntVec int_splat(uint32_t x) { return _mm512_set1_epi32(static_cast<int>(x)); }
MUDNN_INLINE IntVec int_step(IntVec sum, IntVec right, IntVec left) { return _mm512_dpbusd_epi32(sum, right, left); }
#elif MUDNN_LEVEL == 1
using IntVec = __m256i;
constexpr int kIntTileRows = 6;
constexpr int kUnitDepth = 2;
MUDNN_INLINE IntVec int_zero() { return _mm256_setzero_si256(); }
MUDNN_INLINE IntVec int_load(const void* p) { return _mm256_loadu_si256(static_cast<const __m256i*>(p)); }
MUDNN_INLINE void int_store(int32_t* p, IntVec v) { _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), v); }
MUDNN_INLINE IntVec int_splat(uint32_t x) { return _mm256_set1_epi32(static_cast<int>(x)); }
MUDNN_INLINE IntVec int_step(IntVec sum, IntVec right, IntVec left) {
  return _mm256_add_epi32(sum, _mm256_madd_epi16(right, left));
}
#else
using IntVec = Int4;
constexpr int kIntTileRows = 6;
constexpr int kUnitDepth = 2;
MUDNN_INLINE IntVec int_zero() { return IntVec{}; }
MUDNN_INLINE IntVec int_load(const void* p) {
  IntVec v;
  memcpy(&v, p, sizeof v);
  return v;
}
MUDNN_INLINE void int_store(int32_t* p, IntVec v) { memcpy(p, &v, sizeof v); }
MUDNN_INLINE IntVec int_splat(uint32_t x) {
  const int32_t same = static_cast<int32_t>(x);
  return IntVec{same, same, same, same};
}
MUDNN_INLINE IntVec int_step(IntVec sum, IntVec right, IntVec left) {
#if defined(__SSE2__)
  return sum +
      reinterpret_cast<IntVec>(_mm_madd_epi16(reinterpret_cast<__m128i>(right), reinterpret_cast<__m128i>(left)));
#else
  const Uint4 low = reinterpret_cast<Uint4>(right) << 16;
  const Uint4 left_low = reinterpret_cast<Uint4>(left) << 16;
  const IntVec both =
      (reinterpret_cast<IntVec>(low) >> 16) * (reinterpret_cast<IntVec>(left_low) >> 16) + (right >> 16) * (left >> 16);
  return reinterpret_cast<IntVec>(reinterpret_cast<Uint4>(sum) + reinterpret_cast<Uint4>(both));
#endif
}
#endif

constexpr int kIntLanes = Vec::kLanes;
constexpr int kIntTileColumns = 2 * kIntLanes;
/// Units behind the last one of a panel that packing may overwrite.
constexpr int kIntSlack = 16;

/// An operand seen as lines: number (line, k) at data[line * line_stride + k * depth_stride].
struct Int8Lines {
  const int8_t* data;
  int64_t line_stride;
  int64_t depth_stride;

  MUDNN_INLINE const int8_t* at(int64_t line, int64_t k) const { return data + line * line_stride + k * depth_stride; }
};

/// `flip` is added to each unit's bytes with AVX-512 (0x80808080 for the right operand), and ignored below.
inline void pack_int8_any(Int8Lines from, int lines, int64_t depth, int width, uint32_t flip, uint32_t* panel) {
  constexpr int kBits = 32 / kUnitDepth;
  constexpr uint32_t kMask = kUnitDepth == 4 ? 0xffu : 0xffffu;
  for (int64_t p = 0; p < depth; p += kUnitDepth) {
    for (int line = 0; line < width; ++line) {
      uint32_t unit = 0;
      for (int i = 0; line < lines && i < kUnitDepth && p + i < depth; ++i) {
        unit |= (static_cast<uint32_t>(*from.at(line, p + i)) & kMask) << (i * kBits);
      }
      panel[p / kUnitDepth * width + line] = kUnitDepth == 4 ? unit ^ flip : unit;
    }
  }
}

#if MUDNN_LEVEL == 2
MUDNN_INLINE __m512i load_bytes(const int8_t* p, int64_t count) {
  return count >= 64 ? _mm512_loadu_si512(p) : _mm512_maskz_loadu_epi8((uint64_t{1} << count) - 1, p);
}

/// Lines `lines` .. `width` are filled up. width is a multiple of 16; else width == lines, below 16, and kIntSlack
/// units behind may be overwritten.
inline void pack_int8(Int8Lines from, int lines, int64_t depth, int width, uint32_t flip, uint32_t* panel) {
  const __m512i flips = int_splat(flip);
  for (int base = 0; base < width; base += 16) {
    const int here = lines - base < 0 ? 0 : lines - base < 16 ? lines - base : 16;
    uint32_t* to = panel + base;
    const int8_t* source = here > 0 ? from.at(base, 0) : from.data;
    if (from.depth_stride == 1 || here == 0) {
      for (int64_t k = 0; k < depth; k += 64) {
        __m512i r[16];
#pragma GCC unroll 16
        for (int i = 0; i < 16; ++i) {
          r[i] = i < here ? load_bytes(source + i * from.line_stride + k, depth - k) : _mm512_setzero_si512();
        }
        transpose(r);
        const int64_t units = (depth - k + 3) / 4;
#pragma GCC unroll 16
        for (int i = 0; i < 16; ++i) {
          if (i < units) {
            _mm512_storeu_si512(to + (k / 4 + i) * width, _mm512_xor_si512(r[i], flips));
          }
        }
      }
    } else if (from.line_stride == 1) {
      const __mmask16 mask = first_lanes(here);
      for (int64_t k = 0; k < depth; k += 4) {
        __m512i unit = _mm512_setzero_si512();
#pragma GCC unroll 4
        for (int i = 0; i < 4; ++i) {
          if (k + i < depth) {
            const __m128i bytes = _mm_maskz_loadu_epi8(mask, source + (k + i) * from.depth_stride);
            unit = _mm512_or_si512(unit, _mm512_slli_epi32(_mm512_cvtepu8_epi32(bytes), static_cast<unsigned>(8 * i)));
          }
        }
        _mm512_storeu_si512(to + k / 4 * width, _mm512_xor_si512(unit, flips));
      }
    } else {
      pack_int8_any(from, lines, depth, width, flip, panel);
      return;
    }
  }
}
#else
inline void pack_int8(Int8Lines from, int lines, int64_t depth, int width, uint32_t flip, uint32_t* panel) {
  pack_int8_any(from, lines, depth, width, flip, panel);
}
#endif

/// tile [rows, kIntTileColumns] = (add: its value) + left right, over `units` units of depth.
template <int kRows>
void multiply_int8(const uint32_t* left, const uint32_t* right, int64_t units, int32_t* tile, bool add) {
  IntVec sums[kRows][2];
#pragma GCC unroll 14
  for (int i = 0; i < kRows; ++i) {
    sums[i][0] = add ? int_load(tile + i * kIntTileColumns) : int_zero();
    sums[i][1] = add ? int_load(tile + i * kIntTileColumns + kIntLanes) : int_zero();
  }
  for (int64_t p = 0; p < units; ++p) {
    const IntVec first = int_load(right + p * kIntTileColumns);
    const IntVec second = int_load(right + p * kIntTileColumns + kIntLanes);
#pragma GCC unroll 14
    for (int i = 0; i < kRows; ++i) {
      const IntVec one = int_splat(left[p * kRows + i]);
      sums[i][0] = int_step(sums[i][0], first, one);
      sums[i][1] = int_step(sums[i][1], second, one);
    }
  }
#pragma GCC unroll 14
  for (int i = 0; i < kRows; ++i) {
    int_store(tile + i * kIntTileColumns, sums[i][0]);
    int_store(tile + i * kIntTileColumns + kIntLanes, sums[i][1]);
  }
}

template <int kRows = kIntTileRows>
void multiply_int8_rows(int rows, const uint32_t* left, const uint32_t* right, int64_t units, int32_t* tile, bool add) {
  if constexpr (kRows > 1) {
    if (rows < kRows) {
      return multiply_int8_rows<kRows - 1>(rows, left, right, units, tile, add);
    }
  }
  multiply_int8<kRows>(left, right, units, tile, add);
}

}  // namespace
}  // namespace mudnn
