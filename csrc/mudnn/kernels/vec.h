// The vector of float32 in which the kernels of this folder compute, at the instruction set this file is compiled for.
//
// Every file of this folder is compiled once per level (CMakeLists.txt: MUDNN_LEVEL 0 portable, 1 AVX2, 2 AVX-512), so
// nothing here may have a name that the linker could share between levels or with the rest of the program: all of it
// is in an unnamed namespace, no standard container or algorithm is used, and a file gives away one table only
// (MUDNN_TABLE). tests/mudnn/test_isa_objects.py looks.
//
//   Vec v = load(p);            16-bit types are widened; load_part(p, n) reads n elements, the others are 0
//   store(p, v);                rounds to nearest even; store_part(p, v, n)
//   splat(x), zero(), + - * /, fma(a, b, c) = a * b + c, max, min (NaN in the second argument wins), abs, sqrt
//   exp, tanh, erf              within 2 ulp; NaN stays NaN
//   reduce_add(v), reduce_max(v)
//   less(a, b) -> Mask, select(mask, if_true, if_false)
#pragma once

#include <stdint.h>
#include <string.h>

#include "mudnn/types.h"

#if MUDNN_LEVEL == 2
#define MUDNN_LEVEL_NAME avx512
#elif MUDNN_LEVEL == 1
#define MUDNN_LEVEL_NAME avx2
#else
#define MUDNN_LEVEL_NAME portable
#endif
#define MUDNN_JOIN2(a, b) a##_##b
#define MUDNN_JOIN(a, b) MUDNN_JOIN2(a, b)

/// Defines the one visible object of a file: `MUDNN_TABLE(GluKernels, glu) = {...};` becomes glu_avx512 and so on.
#define MUDNN_TABLE(Type, name)                         \
  extern const Type MUDNN_JOIN(name, MUDNN_LEVEL_NAME); \
  const Type MUDNN_JOIN(name, MUDNN_LEVEL_NAME)

#define MUDNN_INLINE inline __attribute__((always_inline))

#if MUDNN_LEVEL == 2
#include "mudnn/kernels/vec_avx512.h"
#elif MUDNN_LEVEL == 1
#include "mudnn/kernels/vec_avx2.h"
#else
#include "mudnn/kernels/vec_portable.h"
#endif
#include "mudnn/kernels/vec_math.h"

namespace mudnn {
namespace {

/// body(first, count) over 0 .. n in steps of a vector; the last count may be smaller.
template <class F>
MUDNN_INLINE void for_vectors(int64_t n, F&& body) {
  int64_t i = 0;
  for (; i + Vec::kLanes <= n; i += Vec::kLanes) {
    body(i, int{Vec::kLanes});
  }
  if (i < n) {
    body(i, static_cast<int>(n - i));
  }
}

/// load and store of `count` elements, where a full vector takes the short way.
template <class T>
MUDNN_INLINE Vec load_up_to(const T* p, int count) {
  return count == Vec::kLanes ? load(p) : load_part(p, count);
}
template <class T>
MUDNN_INLINE void store_up_to(T* p, Vec v, int count) {
  if (count == Vec::kLanes) {
    store(p, v);
  } else {
    store_part(p, v, count);
  }
}

}  // namespace
}  // namespace mudnn
