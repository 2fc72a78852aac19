#include "mudnn/gemm.h"

#include "mudnn/kernels/dtypes.h"
#include "mudnn/kernels/gemm_dot.h"
#include "mudnn/kernels/gemm_tile.h"
#include "mudnn/scratch.h"

namespace mudnn {
namespace {

int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }

template <class T>
MUDNN_INLINE void store_one(T* to, float value) {
  store_part(to, splat(value), 1);
}

template <class T>
MUDNN_INLINE Vec load_addend(const void* addend, int64_t at, int64_t stride, int count) {
  const T* from = static_cast<const T*>(addend) + at;
  if (stride == 1) {
    return load_up_to(from, count);
  }
  if (stride == 0) {
    return splat(to_float(*from));
  }
  float lanes[Vec::kLanes] = {};
  for (int i = 0; i < count; ++i) {
    lanes[i] = to_float(from[i * stride]);
  }
  return load(lanes);
}

// Products of one row, from `column` on, into the result: scaled, added to, rounded.
template <class Out>
MUDNN_INLINE void finish_row(
    const GemmProblem& problem, int64_t batch, int64_t row, int64_t column, const float* products, int64_t count) {
  Out* out = static_cast<Out*>(problem.c) + batch * problem.c_batch + row * problem.c_row + column * problem.c_column;
  const int64_t addend = batch * problem.addend_batch + row * problem.addend_row + column * problem.addend_column;
  const Vec alpha = splat(problem.alpha);
  const Vec beta = splat(problem.beta);
  for_vectors(count, [&](int64_t i, int n) {
    Vec v = load_up_to(products + i, n) * alpha;
    if (problem.beta != 0) {
      const int64_t at = addend + i * problem.addend_column;
      Vec more = zero();
      for_dtype(problem.addend_dtype, [&](auto element) {
        more = load_addend<decltype(element)>(problem.addend, at, problem.addend_column, n);
      });
      v = fma(beta, more, v);
    }
    if (problem.c_column == 1) {
      store_up_to(out + i, v, n);
    } else {
      float lanes[Vec::kLanes];
      store(lanes, v);
      for (int lane = 0; lane < n; ++lane) {
        store_one(out + (i + lane) * problem.c_column, lanes[lane]);
      }
    }
  });
}

void finish_tile(
    const GemmProblem& problem, int64_t batch, int64_t row, int64_t rows, int64_t column, int64_t columns,
    const float* products, int64_t stride) {
  for_dtype(problem.out_dtype, [&](auto element) {
    for (int64_t i = 0; i < rows; ++i) {
      finish_row<decltype(element)>(problem, batch, row + i, column, products + i * stride, columns);
    }
  });
}

/// What the product of the row tile `tile` fetches of the lines that will be packed next: the first two half of them
/// each, where their depth is contiguous; else nothing, i.e. what is there already.
template <class T>
Fetch fetch_of(const Lines<T>& next, int64_t tile) {
  constexpr int64_t kBytes = sizeof(T);
  if (tile >= 2 || next.depth_stride != 1) {
    return {reinterpret_cast<const char*>(next.data), 0, 0};
  }
  return {
      reinterpret_cast<const char*>(next.at(tile * Fetch::kGroup, 0)), next.line_stride * kBytes,
      Fetch::kGroup * Packing<T>::kDepth * kBytes};
}

/// Panels of the right operand that are packed at a time where its rows are contiguous.
constexpr int64_t kPanelGroup = 8;

/// Packs `lines` lines into panels, one behind the other.
template <class T>
void pack_right(Lines<T> from, int64_t lines, int64_t depth, typename Packing<T>::Unit* to) {
  const int64_t panel = (depth + Packing<T>::kDepth - 1) / Packing<T>::kDepth * kTileColumns;
  int64_t line = 0;
#if MUDNN_LEVEL == 2
  if (from.line_stride == 1 && lines >= 2 * kTileColumns) {
    const int64_t full = lines / kTileColumns;
    pack_across(from, depth, static_cast<int>(full), to);
    line = full * kTileColumns;
  }
#endif
  for (; line < lines; line += kTileColumns) {
    pack_panel(
        Lines<T>{from.at(line, 0), from.line_stride, from.depth_stride},
        static_cast<int>(least(kTileColumns, lines - line)), depth, kTileColumns, to + line / kTileColumns * panel);
  }
}

template <class T>
void packed_of(
    const GemmProblem& problem, int64_t batch, int64_t row, int64_t row_end, int64_t column, int64_t column_end) {
  using Unit = typename Packing<T>::Unit;
  constexpr int64_t kTile = int64_t{kTileRows} * kTileColumns;
  const int64_t rows = row_end - row;
  const int64_t columns = column_end - column;
  // Nearly equal tiles (16 rows as 8 and 8), two where that costs nothing, as each fetches half of the next panel.
  const int64_t row_tiles = rows >= kTileRows / 2 && rows <= kTileRows ? 2 : (rows + kTileRows - 1) / kTileRows;
  const int64_t tile_rows = (rows + row_tiles - 1) / row_tiles;
  const int64_t column_tiles = (columns + kTileColumns - 1) / kTileColumns;
  const int64_t deepest = least(kTileDepth<T>, problem.k);
  const int64_t deepest_units = (deepest + Packing<T>::kDepth - 1) / Packing<T>::kDepth;
  const bool one_pass = problem.k <= kTileDepth<T>;
  Unit* left = static_cast<Unit*>(
      scratch(0, static_cast<size_t>(row_tiles * kTileRows * deepest_units + kPanelSlack) * sizeof(Unit)));
  Unit* right = static_cast<Unit*>(
      scratch(1, static_cast<size_t>(kPanelGroup * kTileColumns * deepest_units + kPanelSlack) * sizeof(Unit)));
  float* tiles = static_cast<float*>(
      scratch(2, static_cast<size_t>(one_pass ? kTile : row_tiles * column_tiles * kTile) * sizeof(float)));
  const Lines<T> a = {
      static_cast<const T*>(problem.a) + batch * problem.a_batch + row * problem.a_row, problem.a_row,
      problem.a_column};
  const Lines<T> b = {
      static_cast<const T*>(problem.b) + batch * problem.b_batch + column * problem.b_column, problem.b_column,
      problem.b_row};
  const int64_t group = b.depth_stride == 1 ? 1 : kPanelGroup;
  int64_t k = 0;
  do {
    const int64_t depth = least(kTileDepth<T>, problem.k - k);
    const int64_t units = (depth + Packing<T>::kDepth - 1) / Packing<T>::kDepth;
    const bool last = k + depth >= problem.k;
    for (int64_t i = 0; i < row_tiles; ++i) {
      const int here = static_cast<int>(least(tile_rows, rows - i * tile_rows));
      pack_panel(
          Lines<T>{a.at(i * tile_rows, k), a.line_stride, a.depth_stride}, here, depth, here,
          left + i * tile_rows * units);
    }
    for (int64_t j = 0; j < column_tiles; ++j) {
      const int64_t first = j * kTileColumns;
      if (j % group == 0) {
        pack_right(
            Lines<T>{b.at(first, k), b.line_stride, b.depth_stride}, least(columns - first, group * kTileColumns),
            depth, right);
      }
      const Unit* panel = right + j % group * kTileColumns * units;
      const Lines<T> next = {
          j + 1 < column_tiles ? b.at(first + kTileColumns, k) : b.at(0, k + depth), b.line_stride, b.depth_stride};
      for (int64_t i = 0; i < row_tiles; ++i) {
        const int64_t here = least(tile_rows, rows - i * tile_rows);
        float* tile = tiles + (one_pass ? 0 : (j * row_tiles + i) * kTile);
        multiply_panels(
            static_cast<int>(here), left + i * tile_rows * units, panel, units, tile, k > 0, fetch_of(next, i));
        if (last) {
          finish_tile(
              problem, batch, row + i * tile_rows, here, column + first, least(kTileColumns, columns - first), tile,
              kTileColumns);
        }
      }
    }
    k += depth;
  } while (k < problem.k);
}

void packed(
    const GemmProblem& problem, int64_t batch, int64_t row, int64_t row_end, int64_t column, int64_t column_end) {
  for_dtype(problem.dtype, [&](auto element) {
    packed_of<decltype(element)>(problem, batch, row, row_end, column, column_end);
  });
}

template <class T>
void dot_of(const GemmProblem& problem, int64_t batch, int64_t begin, int64_t end) {
  constexpr int64_t kChunk = 16;  // columns of a quarter that are stored at a time
  float products[kDotRows * kDotStreams * kChunk];
  const int64_t quarter = (problem.n + kDotStreams - 1) / kDotStreams;
  const T* a = static_cast<const T*>(problem.a) + batch * problem.a_batch;
  const T* b = static_cast<const T*>(problem.b) + batch * problem.b_batch;
  const int rows = static_cast<int>(problem.m);
  for (int64_t first = begin; first < end; first += kChunk) {
    const int64_t chunk = least(kChunk, end - first);
    for (int64_t i = 0; i < chunk; ++i) {
      const T* right[kDotStreams];
      for (int64_t j = 0; j < kDotStreams; ++j) {
        // Where the last quarter is shorter its last column is computed again, and left out below.
        right[j] = b + least(j * quarter + first + i, problem.n - 1) * problem.b_column;
      }
      float sums[kDotRows * kDotStreams];
      dot_rows(a, problem.a_row, rows, right, problem.k, sums, kDotStreams);
      for (int row = 0; row < rows; ++row) {
        for (int j = 0; j < kDotStreams; ++j) {
          products[(row * kDotStreams + j) * kChunk + i] = sums[row * kDotStreams + j];
        }
      }
    }
    for (int j = 0; j < kDotStreams; ++j) {
      const int64_t column = j * quarter + first;
      const int64_t count = least(chunk, problem.n - column);
      if (count > 0) {
        finish_tile(problem, batch, 0, rows, column, count, products + j * kChunk, kDotStreams * kChunk);
      }
    }
  }
}

void dot(const GemmProblem& problem, int64_t batch, int64_t begin, int64_t end) {
  for_dtype(problem.dtype, [&](auto element) { dot_of<decltype(element)>(problem, batch, begin, end); });
}

}  // namespace

MUDNN_TABLE(GemmKernels, gemm) = {kTileRows, kTileColumns, packed, dot};

}  // namespace mudnn
