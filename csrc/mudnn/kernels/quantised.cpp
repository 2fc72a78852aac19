#include "mudnn/quantised.h"

#include "mudnn/kernels/dtypes.h"
#include "mudnn/kernels/int8_tile.h"
#include "mudnn/scratch.h"

namespace mudnn {
namespace {

// Depth of a pass in numbers: two panels of it stay in the near caches.
constexpr int64_t kPassDepth = 384 * kUnitDepth;
constexpr int kStreams = 4;  // columns of the weight that are read at a time, a quarter of it apart
constexpr int64_t kChunk = 16;
constexpr int kDotRows = 4;

int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }

int32_t row_sum(const Int8Problem& problem, int64_t row) {
  const int8_t* a = problem.a + row * problem.a_row;
#if MUDNN_LEVEL == 2
  if (problem.a_column == 1) {
    const __m512i ones = _mm512_set1_epi8(1);
    __m512i sums = _mm512_setzero_si512();
    for (int64_t k = 0; k < problem.k; k += 64) {
      sums = _mm512_dpbusd_epi32(sums, ones, load_bytes(a + k, problem.k - k));
    }
    return _mm512_reduce_add_epi32(sums);
  }
#endif
  int32_t sum = 0;
  for (int64_t k = 0; k < problem.k; ++k) {
    sum += a[k * problem.a_column];
  }
  return sum;
}

// What the sums of a row are too large by.
uint32_t excess_of(const Int8Problem& problem, int64_t row) {
  return MUDNN_LEVEL == 2 ? 128u * static_cast<uint32_t>(row_sum(problem, row)) : 0u;
}

template <class T>
MUDNN_INLINE void scale_row(const Int8Problem& problem, int64_t row, int64_t column, const float* sums, int64_t count) {
  T* out = static_cast<T*>(problem.out) + row * problem.n + column;
  const Vec row_scale = splat(problem.row_scales[row]);
  const T* bias = problem.bias == nullptr ? nullptr : static_cast<const T*>(problem.bias) + column;
  for_vectors(count, [&](int64_t i, int n) {
    Vec v = load_up_to(sums + i, n) * (row_scale * load_up_to(problem.column_scales + column + i, n));
    if (bias != nullptr) {
      v = v + load_up_to(bias + i, n);
    }
    store_up_to(out + i, v, n);
  });
}

// `count` (up to 32) sums of a row, from `column` on, into the result.
void finish_row(
    const Int8Problem& problem, int64_t row, int64_t column, const int32_t* sums, uint32_t excess, int64_t count) {
  if (problem.sums != nullptr) {
    int32_t* out = problem.sums + row * problem.n + column;
    for (int64_t i = 0; i < count; ++i) {
      out[i] = static_cast<int32_t>(static_cast<uint32_t>(sums[i]) - excess);
    }
    return;
  }
  float values[32];
  for (int64_t i = 0; i < count; ++i) {
    values[i] = static_cast<float>(static_cast<int32_t>(static_cast<uint32_t>(sums[i]) - excess));
  }
  for_dtype(
      problem.out_dtype, [&](auto element) { scale_row<decltype(element)>(problem, row, column, values, count); });
}

void packed(const Int8Problem& problem, int64_t row, int64_t row_end, int64_t column, int64_t column_end) {
  constexpr int64_t kTile = int64_t{kIntTileRows} * kIntTileColumns;
  const int64_t rows = row_end - row;
  const int64_t columns = column_end - column;
  const int64_t row_tiles = (rows + kIntTileRows - 1) / kIntTileRows;
  const int64_t column_tiles = (columns + kIntTileColumns - 1) / kIntTileColumns;
  const int64_t passes = problem.k <= kPassDepth ? 1 : (problem.k + kPassDepth - 1) / kPassDepth;
  const int64_t pass_units = ((problem.k + passes - 1) / passes + kUnitDepth - 1) / kUnitDepth;
  uint32_t* left = static_cast<uint32_t*>(
      scratch(0, static_cast<size_t>(row_tiles * kIntTileRows * pass_units + kIntSlack) * sizeof(uint32_t)));
  uint32_t* right = static_cast<uint32_t*>(
      scratch(1, static_cast<size_t>(kIntTileColumns * pass_units + kIntSlack) * sizeof(uint32_t)));
  int32_t* tiles = static_cast<int32_t*>(
      scratch(2, static_cast<size_t>(passes == 1 ? kTile : row_tiles * column_tiles * kTile) * sizeof(int32_t)));
  uint32_t* excess = static_cast<uint32_t*>(scratch(3, static_cast<size_t>(rows) * sizeof(uint32_t)));
  for (int64_t i = 0; i < rows; ++i) {
    excess[i] = excess_of(problem, row + i);
  }
  const Int8Lines a = {problem.a + row * problem.a_row, problem.a_row, problem.a_column};
  const Int8Lines b = {problem.b + column * problem.b_column, problem.b_column, problem.b_row};
  for (int64_t pass = 0; pass < passes; ++pass) {
    const int64_t k = pass * pass_units * kUnitDepth;
    const int64_t depth = problem.k - k < 0 ? 0 : least(pass_units * kUnitDepth, problem.k - k);
    const int64_t units = (depth + kUnitDepth - 1) / kUnitDepth;
    for (int64_t i = 0; i < row_tiles; ++i) {
      const int here = static_cast<int>(least(kIntTileRows, rows - i * kIntTileRows));
      pack_int8(
          {a.at(i * kIntTileRows, k), a.line_stride, a.depth_stride}, here, depth, here, 0,
          left + i * kIntTileRows * units);
    }
    for (int64_t j = 0; j < column_tiles; ++j) {
      const int64_t first = j * kIntTileColumns;
      const int64_t wide = least(kIntTileColumns, columns - first);
      pack_int8(
          {b.at(first, k), b.line_stride, b.depth_stride}, static_cast<int>(wide), depth, kIntTileColumns, 0x80808080u,
          right);
      for (int64_t i = 0; i < row_tiles; ++i) {
        const int64_t here = least(kIntTileRows, rows - i * kIntTileRows);
        int32_t* tile = tiles + (passes == 1 ? 0 : (j * row_tiles + i) * kTile);
        multiply_int8_rows(static_cast<int>(here), left + i * kIntTileRows * units, right, units, tile, pass > 0);
        for (int64_t line = 0; pass + 1 == passes && line < here; ++line) {
          const int64_t at = i * kIntTileRows + line;
          finish_row(problem, row + at, column + first, tile + line * kIntTileColumns, excess[at], wide);
        }
      }
    }
  }
}

// sums[row * kStreams + stream] of kRows rows with kStreams columns.
template <int kRows>
MUDNN_INLINE void dot_rows(
    const int8_t* a, int64_t a_row, const int8_t* const (&b)[kStreams], int64_t k, int32_t* sums) {
#if MUDNN_LEVEL == 2
  const __m512i flip = int_splat(0x80808080u);
  __m512i parts[kRows][kStreams];
  for (auto& row : parts) {
    for (__m512i& part : row) {
      part = _mm512_setzero_si512();
    }
  }
  for (int64_t i = 0; i < k; i += 64) {
    __m512i left[kRows];
#pragma GCC unroll 4
    for (int row = 0; row < kRows; ++row) {
      left[row] = load_bytes(a + row * a_row + i, k - i);
    }
#pragma GCC unroll 4
    for (int j = 0; j < kStreams; ++j) {
      const __m512i right = _mm512_xor_si512(load_bytes(b[j] + i, k - i), flip);
#pragma GCC unroll 4
      for (int row = 0; row < kRows; ++row) {
        parts[row][j] = _mm512_dpbusd_epi32(parts[row][j], right, left[row]);
      }
    }
  }
  for (int row = 0; row < kRows; ++row) {
    for (int j = 0; j < kStreams; ++j) {
      sums[row * kStreams + j] = _mm512_reduce_add_epi32(parts[row][j]);
    }
  }
#else
  constexpr int64_t kSafeDepth = 65536;  // products that an int32 surely holds the sum of
  for (int row = 0; row < kRows; ++row) {
    for (int j = 0; j < kStreams; ++j) {
      uint32_t sum = 0;
      for (int64_t start = 0; start < k; start += kSafeDepth) {
        int32_t part = 0;
        for (int64_t i = start; i < least(k, start + kSafeDepth); ++i) {
          part += static_cast<int16_t>(a[row * a_row + i]) * static_cast<int16_t>(b[j][i]);
        }
        sum += static_cast<uint32_t>(part);
      }
      sums[row * kStreams + j] = static_cast<int32_t>(sum);
    }
  }
#endif
}

template <int kRows>
void dot_some(const Int8Problem& problem, int64_t row, int64_t first, int64_t chunk) {
  const int64_t quarter = (problem.n + kStreams - 1) / kStreams;
  int32_t sums[kRows][kStreams][kChunk];
  for (int64_t i = 0; i < chunk; ++i) {
    const int8_t* columns[kStreams];
    for (int64_t j = 0; j < kStreams; ++j) {
      // Where the last quarter is shorter its last column is computed again, and left out below.
      columns[j] = problem.b + least(j * quarter + first + i, problem.n - 1) * problem.b_column;
    }
    int32_t here[kRows * kStreams];
    dot_rows<kRows>(problem.a + row * problem.a_row, problem.a_row, columns, problem.k, here);
    for (int r = 0; r < kRows; ++r) {
      for (int j = 0; j < kStreams; ++j) {
        sums[r][j][i] = here[r * kStreams + j];
      }
    }
  }
  for (int r = 0; r < kRows; ++r) {
    const uint32_t excess = excess_of(problem, row + r);
    for (int64_t j = 0; j < kStreams; ++j) {
      const int64_t column = j * quarter + first;
      const int64_t count = least(chunk, problem.n - column);
      if (count > 0) {
        finish_row(problem, row + r, column, sums[r][j], excess, count);
      }
    }
  }
}

void dot(const Int8Problem& problem, int64_t begin, int64_t end) {
  for (int64_t first = begin; first < end; first += kChunk) {
    const int64_t chunk = least(kChunk, end - first);
    int64_t row = 0;
    for (; row + kDotRows <= problem.m; row += kDotRows) {
      dot_some<kDotRows>(problem, row, first, chunk);
    }
    for (; row < problem.m; ++row) {
      dot_some<1>(problem, row, first, chunk);
    }
  }
}

MUDNN_INLINE void store_int8(int8_t* to, Vec v, int count) {
#if MUDNN_LEVEL == 2
  _mm512_mask_cvtepi32_storeu_epi8(to, first_lanes(count), _mm512_cvtps_epi32(v.v));
#else
  float lanes[Vec::kLanes];
  store(lanes, v);
  for (int i = 0; i < count; ++i) {
    to[i] = static_cast<int8_t>(lanes[i]);
  }
#endif
}

template <class T>
void quantise_row(const QuantiseProblem& problem, int64_t row) {
  constexpr float kSmallest = 0x1p-126f;
  const T* x = static_cast<const T*>(problem.x) + row * problem.columns;
  int8_t* out = problem.out + row * problem.columns;
  Vec largest = zero();
  Vec poison = zero();  // NaN where a number isn't finite
  for_vectors(problem.columns, [&](int64_t i, int n) {
    const Vec v = load_up_to(x + i, n);
    largest = max(abs(v), largest);
    poison = poison + v * zero();
  });
  const float dynamic = reduce_max(largest) / 127;
  const float scale = problem.scale != 0 ? problem.scale : dynamic > kSmallest ? dynamic : kSmallest;
  const Vec inverse = splat(1 / scale);
  for_vectors(problem.columns, [&](int64_t i, int n) {
    // A NaN becomes the second argument of max.
    const Vec v = max(load_up_to(x + i, n) * inverse, splat(-128));
    store_int8(out + i, round(min(v, splat(127))), n);
  });
  problem.row_scales[row] = scale + reduce_add(poison);
}

void quantise(const QuantiseProblem& problem, int64_t begin, int64_t end) {
  for (int64_t row = begin; row < end; ++row) {
    for_dtype(problem.dtype, [&](auto element) { quantise_row<decltype(element)>(problem, row); });
  }
}

}  // namespace

MUDNN_TABLE(Int8Kernels, quantised) = {kIntTileRows, kIntTileColumns, packed, dot, quantise};

}  // namespace mudnn
