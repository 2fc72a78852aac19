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
// Of each quarter of the columns.
constexpr int64_t kDotColumns = 16;

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

/// Rows row .. row_end of the problem.
GemmProblem rows_of(const GemmProblem& problem, int64_t row, int64_t row_end) {
  const auto moved = [](const void* data, int64_t elements, Dtype dtype) {
    return static_cast<const char*>(data) + elements * (dtype == Dtype::kFloat32 ? 4 : 2);
  };
  GemmProblem part = problem;
  part.m = row_end - row;
  part.a = moved(problem.a, row * problem.a_row, problem.dtype);
  part.c = const_cast<char*>(moved(problem.c, row * problem.c_row, problem.out_dtype));
  if (problem.addend != nullptr) {
    part.addend = moved(problem.addend, row * problem.addend_row, problem.addend_dtype);
  }
  return part;
}

void dot(const GemmProblem& problem, const Parallel& parallel) {
  const GemmKernels& kernels = gemm_kernels();
  const int64_t quarter = ceil_div(problem.n, 4);
  const int64_t work = std::max<int64_t>(1, 4 * problem.k * std::min<int64_t>(problem.m, 8));
  parallel.for_each(
      problem.batch * quarter, std::max<int64_t>(1, kWorkPerTask / work), [&](int64_t begin, int64_t end) {
        while (begin < end) {
          const int64_t batch = begin / quarter;
          int64_t stop = std::min(end, (batch + 1) * quarter);
          if (problem.m <= kGemmDotRows) {
            kernels.dot(problem, batch, begin - batch * quarter, stop - batch * quarter);
          } else {
            // Columns that stay in the second cache while all rows pass by.
            stop = std::min(stop, begin + kDotColumns);
            for (int64_t row = 0; row < problem.m; row += kGemmDotRows) {
              const GemmProblem part = rows_of(problem, row, std::min(problem.m, row + kGemmDotRows));
              kernels.dot(part, batch, begin - batch * quarter, stop - batch * quarter);
            }
          }
          begin = stop;
        }
      });
}

// The model, in nanoseconds of one thread, from measurements on one CPU of each level; what matters is which way is
// said to be cheaper. Bytes cost more where there are more than the second cache holds.
struct Costs {
  double dot;           // a multiply-add
  double packed;        // a multiply-add
  double pack;          // a byte that is brought into panels
  double pack_distant;  // a byte from memory
};
constexpr double kRead = 0.0175;
constexpr double kReadDistant = 0.04;
constexpr double kDotResult = 1.2;
constexpr double kPackedResult = 0.5;
constexpr double kStridedResult = 1;
constexpr double kNearBytes = 2 << 20;

const Costs& costs_of(Dtype dtype) {
  static constexpr Costs kCosts[][3] = {
      // float32, bfloat16, float16
      {{0.076, 0.074, 0.11, 0.2}, {0.18, 0.057, 0.17, 0.43}, {0.18, 0.074, 0.17, 0.43}},
      {{0.0305, 0.0205, 0.087, 0.3}, {0.04, 0.0205, 0.22, 0.45}, {0.04, 0.0205, 0.22, 0.45}},
      {{0.0205, 0.0205, 0.033, 0.05}, {0.0105, 0.0088, 0.033, 0.05}, {0.0215, 0.0205, 0.05, 0.08}},
  };
  return kCosts[static_cast<int>(isa())][static_cast<int>(dtype)];
}

struct Figures {
  double m, n, k, element;
  double strided;  // more for a result that isn't put down in rows
};

Figures figures_of(const GemmProblem& problem) {
  const auto m = static_cast<double>(problem.m);
  const auto n = static_cast<double>(problem.n);
  const double strided = problem.c_column == 1 ? 0 : kStridedResult;
  return {m, n, static_cast<double>(problem.k), problem.dtype == Dtype::kFloat32 ? 4.0 : 2.0, strided};
}

double dot_estimate(const GemmProblem& problem) {
  const Figures f = figures_of(problem);
  const double bytes = (f.m + f.n) * f.k * f.element;
  // Columns are taken four at a time.
  const auto columns = static_cast<double>((problem.n + 3) & ~int64_t{3});
  return bytes * (bytes <= kNearBytes ? kRead : kReadDistant) + f.m * columns * f.k * costs_of(problem.dtype).dot +
      f.m * f.n * (kDotResult + f.strided);
}

double packed_estimate(const GemmProblem& problem) {
  const Figures f = figures_of(problem);
  const Costs& costs = costs_of(problem.dtype);
  const double bytes = (f.m + f.n) * f.k * f.element;
  const int64_t tile = gemm_kernels().tile_columns;
  const auto columns = static_cast<double>(ceil_div(problem.n, tile) * tile);
  return bytes * (bytes <= kNearBytes ? costs.pack : costs.pack_distant) + f.m * columns * f.k * costs.packed +
      f.m * f.n * (kPackedResult + f.strided);
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

const char* gemm_excludes(GemmWay way, const GemmProblem& problem) {
  if (way == GemmWay::kPacked) {
    return nullptr;
  }
  return problem.b_row != 1   ? "b is not stored by columns"
      : problem.a_column != 1 ? "a is not stored by rows"
                              : nullptr;
}

bool gemm_can(GemmWay way, const GemmProblem& problem) { return gemm_excludes(way, problem) == nullptr; }

double gemm_estimate(GemmWay way, const GemmProblem& problem) {
  return static_cast<double>(problem.batch) * (way == GemmWay::kDot ? dot_estimate(problem) : packed_estimate(problem));
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
