#include "mudnn/quantised.h"

#include <algorithm>

#include "mudnn/isa.h"

namespace mudnn {

MUDNN_TABLES_OF(Int8Kernels, quantised)

namespace {

// A block's packed left operand over a tile's depth stays in the second cache.
constexpr int64_t kBlockRows = 560;
constexpr int64_t kBlockColumns = 512;
// Up to this many rows the weight is read where it lies.
constexpr int64_t kDotRows = 16;
// Multiply-adds, and numbers to round, that are worth a second thread.
constexpr int64_t kWorkPerTask = int64_t{1} << 18;
constexpr int64_t kElementsPerTask = 16384;

int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

int64_t block_size(int64_t size, int64_t most, int64_t unit) {
  return ceil_div(ceil_div(size, ceil_div(size, most)), unit) * unit;
}

}  // namespace

void int8_gemm(const Int8Problem& problem, const Parallel& parallel) {
  if (problem.m == 0 || problem.n == 0) {
    return;
  }
  const Int8Kernels& kernels = quantised_kernels();
  if (problem.m <= kDotRows && problem.a_column == 1 && problem.b_row == 1) {
    const int64_t work = std::max<int64_t>(1, 4 * problem.k * std::min<int64_t>(problem.m, 4));
    parallel.for_each(
        ceil_div(problem.n, 4), std::max<int64_t>(1, kWorkPerTask / work),
        [&](int64_t begin, int64_t end) { kernels.dot(problem, begin, end); });
    return;
  }
  const int64_t rows = block_size(problem.m, kBlockRows, kernels.tile_rows);
  const int64_t row_blocks = ceil_div(problem.m, rows);
  // With several threads so many blocks that none waits long for another.
  const int64_t wanted = parallel.threads > 1 ? ceil_div(4 * parallel.threads, row_blocks) : 1;
  const int64_t columns =
      block_size(problem.n, std::min(kBlockColumns, ceil_div(problem.n, wanted)), kernels.tile_columns);
  const int64_t column_blocks = ceil_div(problem.n, columns);
  const int64_t work = std::max<int64_t>(1, std::min(rows, problem.m) * std::min(columns, problem.n) * problem.k);
  parallel.for_each(
      row_blocks * column_blocks, std::max<int64_t>(1, kWorkPerTask / work), [&](int64_t begin, int64_t end) {
        for (int64_t task = begin; task < end; ++task) {
          const int64_t row = task % row_blocks * rows;
          const int64_t column = task / row_blocks * columns;
          kernels.packed(problem, row, std::min(problem.m, row + rows), column, std::min(problem.n, column + columns));
        }
      });
}

void quantise_rows(const QuantiseProblem& problem, const Parallel& parallel) {
  const Int8Kernels& kernels = quantised_kernels();
  parallel.for_each(
      problem.rows, std::max<int64_t>(1, kElementsPerTask / std::max<int64_t>(1, problem.columns)),
      [&](int64_t begin, int64_t end) { kernels.quantise(problem, begin, end); });
}

}  // namespace mudnn
