// Panels that the tile kernels of gemm_tile.h read from one end to the other.
//
// A panel holds `lines` lines of an operand (rows of the left one, columns of the right one) over a range of the depth
// k, depth first: unit (p, line) at panel[p * width + line]. A unit is one number in float32, or with AVX-512 two
// neighbours in depth of a bfloat16 operand (a missing second one is 0), as dpbf16 takes them.
#pragma once

#include "mudnn/kernels/transpose.h"
#include "mudnn/kernels/vec.h"

namespace mudnn {
namespace {

/// How operands of type T are packed: Unit, and how many numbers of the depth one unit holds.
template <class T>
struct Packing {
  using Unit = float;
  static constexpr int kDepth = 1;
};
#if MUDNN_LEVEL == 2
template <>
struct Packing<Bfloat16> {
  using Unit = uint32_t;
  static constexpr int kDepth = 2;
};
#endif

/// Units behind the last one of a panel that packing may overwrite.
constexpr int kPanelSlack = 16;

MUDNN_INLINE float to_float(float x) { return x; }
MUDNN_INLINE float to_float(Bfloat16 x) {
  const uint32_t bits = static_cast<uint32_t>(x.bits) << 16;
  float value = 0;
  memcpy(&value, &bits, sizeof value);
  return value;
}
MUDNN_INLINE float to_float(Float16 x) {
#if MUDNN_LEVEL >= 1
  return _cvtsh_ss(x.bits);
#else
  return widen_fp16(x.bits);
#endif
}

/// An operand seen as lines: number (line, k) at data[line * line_stride + k * depth_stride].
template <class T>
struct Lines {
  const T* data;
  int64_t line_stride;
  int64_t depth_stride;

  MUDNN_INLINE const T* at(int64_t line, int64_t k) const { return data + line * line_stride + k * depth_stride; }
};

template <class T>
void pack_any(Lines<T> from, int lines, int64_t depth, int width, float* panel) {
  for (int64_t p = 0; p < depth; ++p) {
    for (int line = 0; line < width; ++line) {
      panel[p * width + line] = line < lines ? to_float(*from.at(line, p)) : 0.0f;
    }
  }
}

#if MUDNN_LEVEL == 2

inline void pack_any(Lines<Bfloat16> from, int lines, int64_t depth, int width, uint32_t* panel) {
  for (int64_t p = 0; p < depth; p += 2) {
    for (int line = 0; line < width; ++line) {
      uint32_t pair = 0;
      if (line < lines) {
        const uint32_t second = p + 1 < depth ? from.at(line, p + 1)->bits : 0u;
        pair = from.at(line, p)->bits | second << 16;
      }
      panel[p / 2 * width + line] = pair;
    }
  }
}

// 16 units of a line whose depth is contiguous; `numbers` numbers are left.
MUDNN_INLINE __m512i load_units(const float* p, int64_t numbers) {
  return numbers >= 16 ? _mm512_loadu_si512(p) : _mm512_maskz_loadu_epi32(first_lanes(static_cast<int>(numbers)), p);
}
MUDNN_INLINE __m512i load_units(const Float16* p, int64_t numbers) {
  return _mm512_castps_si512(load_up_to(p, numbers >= 16 ? 16 : static_cast<int>(numbers)).v);
}
MUDNN_INLINE __m512i load_units(const Bfloat16* p, int64_t numbers) {
  return numbers >= 32 ? _mm512_loadu_si512(p)
                       : _mm512_maskz_loadu_epi16(static_cast<__mmask32>((uint64_t{1} << numbers) - 1), p);
}

// Units of up to 16 lines at depth p, where lines are contiguous.
template <class T>
MUDNN_INLINE __m512i across(const T* p, int64_t, int64_t, int lines) {
  return _mm512_castps_si512(load_up_to(p, lines).v);
}
MUDNN_INLINE __m512i across(const Bfloat16* p, int64_t depth_stride, int64_t numbers, int lines) {
  const __mmask16 mask = first_lanes(lines);
  const __m512i first = _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(mask, p));
  if (numbers < 2) {
    return first;
  }
  const __m512i second = _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(mask, p + depth_stride));
  return _mm512_or_si512(first, _mm512_slli_epi32(second, 16));
}

/// Packs `lines` lines from `from`, depth 0 .. depth, into a panel `width` wide. Lines up to `width` are filled with
/// zeros where width is a multiple of 16; else width == lines, below 16, and kPanelSlack units behind may be
/// overwritten.
template <class T>
void pack_panel(Lines<T> from, int lines, int64_t depth, int width, typename Packing<T>::Unit* panel) {
  constexpr int kDepth = Packing<T>::kDepth;
  for (int base = 0; base < width; base += 16) {
    const int here = lines - base < 0 ? 0 : lines - base < 16 ? lines - base : 16;
    typename Packing<T>::Unit* to = panel + base;
    const T* source = here > 0 ? from.at(base, 0) : from.data;
    if (here > 0 && from.depth_stride == 1) {
      int64_t k = 0;
      for (; here == 16 && k + 16 * kDepth <= depth; k += 16 * kDepth) {
        __m512i r[16];
#pragma GCC unroll 16
        for (int i = 0; i < 16; ++i) {
          r[i] = load_units(source + i * from.line_stride + k, 16 * kDepth);
        }
        transpose(r);
#pragma GCC unroll 16
        for (int i = 0; i < 16; ++i) {
          _mm512_storeu_si512(to + (k / kDepth + i) * width, r[i]);
        }
      }
      for (; k < depth; k += 16 * kDepth) {
        __m512i r[16];
#pragma GCC unroll 16
        for (int i = 0; i < 16; ++i) {
          r[i] = i < here ? load_units(source + i * from.line_stride + k, depth - k) : _mm512_setzero_si512();
        }
        transpose(r);
        const int64_t units = (depth - k + kDepth - 1) / kDepth;
        if (units >= 16) {
#pragma GCC unroll 16
          for (int i = 0; i < 16; ++i) {
            _mm512_storeu_si512(to + (k / kDepth + i) * width, r[i]);
          }
        } else {
          for (int64_t i = 0; i < units; ++i) {
            _mm512_storeu_si512(to + (k / kDepth + i) * width, r[i]);
          }
        }
      }
    } else if (here == 0 || from.line_stride == 1) {
      for (int64_t k = 0; k < depth; k += kDepth) {
        const __m512i units = here == 0 ? _mm512_setzero_si512()
                                        : across(source + k * from.depth_stride, from.depth_stride, depth - k, here);
        _mm512_storeu_si512(to + k / kDepth * width, units);
      }
    } else {
      pack_any(from, lines, depth, width, panel);
      return;
    }
  }
}

// Two vectors of units, of 32 neighbouring lines at one depth.
template <class T>
MUDNN_INLINE void across_two(const T* p, int64_t, int64_t, __m512i (&units)[2]) {
  units[0] = across(p, 0, 1, 16);
  units[1] = across(p + 16, 0, 1, 16);
}
MUDNN_INLINE void across_two(const Bfloat16* p, int64_t depth_stride, int64_t numbers, __m512i (&units)[2]) {
  const __m512i order = _mm512_set_epi16(
      47, 15, 46, 14, 45, 13, 44, 12, 43, 11, 42, 10, 41, 9, 40, 8, 39, 7, 38, 6, 37, 5, 36, 4, 35, 3, 34, 2, 33, 1, 32,
      0);
  const __m512i first = _mm512_loadu_si512(p);
  const __m512i second = numbers < 2 ? _mm512_setzero_si512() : _mm512_loadu_si512(p + depth_stride);
  units[0] = _mm512_permutex2var_epi16(first, order, second);
  units[1] = _mm512_permutex2var_epi16(first, _mm512_add_epi16(order, _mm512_set1_epi16(16)), second);
}

/// Packs `panels` panels of 32 lines each, one behind the other, where lines are contiguous: all of them together, as
/// short pieces of distant rows are slow to come from memory.
template <class T>
void pack_across(Lines<T> from, int64_t depth, int panels, typename Packing<T>::Unit* to) {
  constexpr int kDepth = Packing<T>::kDepth;
  constexpr int64_t kAhead = 32;
  const int64_t panel = (depth + kDepth - 1) / kDepth * 32;
  for (int64_t k = 0; k < depth; k += kDepth) {
    for (int i = 0; i < panels; ++i) {
      const T* p = from.at(i * 32, k);
      for (int part = 0; part < kDepth * static_cast<int>(sizeof(T)) * 32 / 64; ++part) {
        const T* next = kDepth == 2 ? p + part * from.depth_stride : p + part * 16;
        __builtin_prefetch(next + kAhead * from.depth_stride, 0, 2);
      }
      __m512i units[2];
      across_two(p, from.depth_stride, depth - k, units);
      _mm512_storeu_si512(to + i * panel + k / kDepth * 32, units[0]);
      _mm512_storeu_si512(to + i * panel + k / kDepth * 32 + 16, units[1]);
    }
  }
}

#else

/// As above; never writes behind the panel.
template <class T>
void pack_panel(Lines<T> from, int lines, int64_t depth, int width, float* panel) {
  if (from.line_stride == 1) {
    for (int64_t p = 0; p < depth; ++p) {
      float* to = panel + p * width;
      int line = 0;
      for (; line + Vec::kLanes <= lines; line += Vec::kLanes) {
        store(to + line, load(from.at(line, p)));
      }
      for (; line < width; ++line) {
        to[line] = line < lines ? to_float(*from.at(line, p)) : 0.0f;
      }
    }
    return;
  }
  pack_any(from, lines, depth, width, panel);
}

#endif

}  // namespace
}  // namespace mudnn
