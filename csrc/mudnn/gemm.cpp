#include "mudnn/gemm.h"

#include <algorithm>
#include <utility>

#include "mudnn/isa.h"

namespace mudnn {

MUDNN_TABLES_OF(GemmKernels, gemm)

namespace {

// A block of the result: so large that packing is a few percent of the work. The right operand is packed once for each
// block of rows, the left one for each block of columns; with few rows, packing these costs little, and blocks that are
// narrow stay within few pages of the right operand.
constexpr int64_t kBlockRows = 560;
constexpr int64_t kManyRows = 280;
constexpr int64_t kBlockColumns = 512;
constexpr int64_t kBlockColumnsOfMany = 1024;
// Multiply-adds that are worth a second thread.
constexpr int64_t kWorkPerTask = int64_t{1} << 17;

int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

// Size of the blocks that cut `size` into equal parts of at most `most`, a multiple of `unit`.
int64_t block_size(int64_t size, int64_t most, int64_t unit) {
  const int64_t blocks = std::max<int64_t>(1, ceil_div(size, most));
  return ceil_div(ceil_div(size, blocks), unit) * unit;
}

void packed(const GemmProblem& problem, const Parallel& parallel) {
  const GemmKernels& kernels = gemm_kernels();
  const int64_t rows = block_size(problem.m, kBlockRows, kernels.tile_rows);
  int64_t columns =
      block_size(problem.n, problem.m < kManyRows ? kBlockColumns : kBlockColumnsOfMany, kernels.tile_columns);
  const int64_t row_blocks = ceil_div(problem.m, rows);
  const int64_t wanted = 4 * parallel.threads;
  if (parallel.threads > 1 && problem.batch * row_blocks * ceil_div(problem.n, columns) < wanted) {
    const int64_t parts = ceil_div(wanted, problem.batch * row_blocks);
    columns = block_size(problem.n, std::max(kernels.tile_columns, ceil_div(problem.n, parts)), kernels.tile_columns);
  }
  const int64_t column_blocks = ceil_div(problem.n, columns);
  const int64_t work = std::max<int64_t>(1, std::min(rows, problem.m) * std::min(columns, problem.n) * problem.k);
  parallel.for_each(
      problem.batch * row_blocks * column_blocks, std::max<int64_t>(1, kWorkPerTask / work),
      [&](int64_t begin, int64_t end) {
        for (int64_t task = begin; task < end; ++task) {
          const int64_t row = task % row_blocks * rows;
          const int64_t column = task / row_blocks % column_blocks * columns;
          kernels.packed(
              problem, task / row_blocks / column_blocks, row, std::min(problem.m, row + rows), column,
              std::min(problem.n, column + columns));
        }
      });
}

void dot(const GemmProblem& problem, const Parallel& parallel) {
  const GemmKernels& kernels = gemm_kernels();
  const int64_t quarter = ceil_div(problem.n, 4);
  const int64_t work = std::max<int64_t>(1, 4 * problem.k * std::min<int64_t>(problem.m, 8));
  parallel.for_each(
      problem.batch * quarter, std::max<int64_t>(1, kWorkPerTask / work), [&](int64_t begin, int64_t end) {
        while (begin < end) {
          const int64_t batch = begin / quarter;
          const int64_t stop = std::min(end, (batch + 1) * quarter);
          kernels.dot(problem, batch, begin - batch * quarter, stop - batch * quarter);
          begin = stop;
        }
      });
}

}  // namespace

GemmProblem transposed(const GemmProblem& problem) {
  GemmProblem other = problem;
  std::swap(other.m, other.n);
  std::swap(other.a, other.b);
  other.a_row = problem.b_column;
  other.a_column = problem.b_row;
  other.a_batch = problem.b_batch;
  other.b_row = problem.a_column;
  other.b_column = problem.a_row;
  other.b_batch = problem.a_batch;
  std::swap(other.c_row, other.c_column);
  std::swap(other.addend_row, other.addend_column);
  return other;
}

bool gemm_can(GemmWay way, const GemmProblem& problem) {
  return way == GemmWay::kPacked || (problem.m <= kGemmDotRows && problem.a_column == 1 && problem.b_row == 1);
}

void gemm(GemmWay way, const GemmProblem& problem, const Parallel& parallel) {
  if (problem.m == 0 || problem.n == 0) {
    return;
  }
  if (way == GemmWay::kDot) {
    dot(problem, parallel);
  } else {
    packed(problem, parallel);
  }
}

}  // namespace mudnn
