// Matrix products: c = alpha * (a b) + beta * addend, for a batch of them.
#pragma once

#include "mudnn/parallel.h"
#include "mudnn/types.h"

namespace mudnn {

/// a is [m, k], b [k, n], c and the addend [m, n]; strides in elements, any of them (an addend's may be 0). Numbers are
/// multiplied and summed in float32, scaled and added in float32, and rounded once. c may be the addend, element by
/// element; else it must not overlap an operand.
struct GemmProblem {
  Dtype dtype;  // of a and b
  Dtype out_dtype;
  int64_t m;
  int64_t n;
  int64_t k;
  const void* a;
  int64_t a_row;
  int64_t a_column;
  const void* b;
  int64_t b_row;
  int64_t b_column;
  void* c;
  int64_t c_row;
  int64_t c_column;
  float alpha = 1;
  float beta = 0;                // 0: the addend is not looked at
  const void* addend = nullptr;  // null where beta is 0
  Dtype addend_dtype = Dtype::kFloat32;
  int64_t addend_row = 0;
  int64_t addend_column = 0;
  int64_t batch = 1;
  int64_t a_batch = 0;
  int64_t b_batch = 0;
  int64_t c_batch = 0;
  int64_t addend_batch = 0;
};

/// Ways to compute it. Each sums a product in an order of its own that depends on nothing but k: a row comes out the
/// same whatever the other rows are, how many there are, and on how many threads.
enum class GemmWay {
  kPacked,  // operands are packed into panels, tiles of the result stay in registers: for many rows
  kDot,     // dot products with the columns of b, read where they are: for few rows and b stored by columns
};

/// kDot reads the matrix once for this many rows.
constexpr int64_t kGemmDotRows = 32;

/// The same product with rows and columns exchanged: c^T = b^T a^T.
GemmProblem transposed(const GemmProblem& problem);

/// Nanoseconds that it takes about, on one thread.
double gemm_estimate(GemmWay way, const GemmProblem& problem);
/// Why the way can't take the problem; null: it can.
const char* gemm_excludes(GemmWay way, const GemmProblem& problem);
bool gemm_can(GemmWay way, const GemmProblem& problem);
void gemm(GemmWay way, const GemmProblem& problem, const Parallel& parallel);

/// Of one instruction set.
struct GemmKernels {
  int64_t tile_rows;
  int64_t tile_columns;
  /// Rows row .. row_end and columns column .. column_end of the product `batch`.
  void (*packed)(
      const GemmProblem& problem, int64_t batch, int64_t row, int64_t row_end, int64_t column, int64_t column_end);
  /// Of the product `batch` the columns begin .. end of each quarter of the columns (rounded up).
  void (*dot)(const GemmProblem& problem, int64_t batch, int64_t begin, int64_t end);
};

}  // namespace mudnn
