// Products of int8 matrices, exact or scaled on the way out, and the rounding of rows to int8.
#pragma once

#include "mudnn/parallel.h"
#include "mudnn/types.h"

namespace mudnn {

/// a is [m, k], b [k, n]; strides in elements, any of them. Sums are int32 (modulo 2^32). With `sums` they are the
/// result; else out = sum * row_scales[row] * column_scales[column] + bias[column], in float32 and rounded once.
/// Results are contiguous [m, n].
struct Int8Problem {
  int64_t m;
  int64_t n;
  int64_t k;
  const int8_t* a;
  int64_t a_row;
  int64_t a_column;
  const int8_t* b;
  int64_t b_row;
  int64_t b_column;
  int32_t* sums = nullptr;
  void* out = nullptr;
  Dtype out_dtype = Dtype::kFloat32;  // also of the bias
  const float* row_scales = nullptr;
  const float* column_scales = nullptr;
  const void* bias = nullptr;  // optional
};

void int8_gemm(const Int8Problem& problem, const Parallel& parallel);

/// Rows of `columns` numbers, contiguous. A row's scale is `scale`, or where that is 0 its largest magnitude / 127, at
/// least the smallest normal float32; out = x / scale (as x times the reciprocal), rounded to nearest even and clamped.
/// The scale of a row with an infinite number or NaN is written as NaN.
struct QuantiseProblem {
  Dtype dtype;
  int64_t rows;
  int64_t columns;
  const void* x;
  float scale;
  int8_t* out;
  float* row_scales;
};

void quantise_rows(const QuantiseProblem& problem, const Parallel& parallel);

/// Of one instruction set.
struct Int8Kernels {
  int64_t tile_rows;
  int64_t tile_columns;
  /// Rows row .. row_end and columns column .. column_end.
  void (*packed)(const Int8Problem& problem, int64_t row, int64_t row_end, int64_t column, int64_t column_end);
  /// The columns begin .. end of each quarter of the columns (rounded up); a_column and b_row are 1.
  void (*dot)(const Int8Problem& problem, int64_t begin, int64_t end);
  void (*quantise)(const QuantiseProblem& problem, int64_t begin, int64_t end);
};

}  // namespace mudnn
