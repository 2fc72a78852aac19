// Attention of few queries over keys and values in pages. Where the CPU multiplies pairs of bfloat16, blocks are used
// as they lie: a vector of 16 keys is multiplied by a pair of the query's elements, so that scores need no sums across.
#include "mudnn/attention.h"
#include "mudnn/kernels/attention_pages.h"
#include "mudnn/kernels/attention_streams.h"

namespace mudnn {
namespace {

/// The keys of a task from the start of their first block.
struct Blocks {
  const Task& t;
  int64_t first, count, blocks;  // keys, of which those before t.first are not seen

  explicit Blocks(const Task& task)
      : t(task),
        first(task.first / kPageBlock * kPageBlock),
        count(task.first + task.count - first),
        blocks((count + kPageBlock - 1) / kPageBlock) {}

  template <class T>
  const T* keys(int64_t block) const {
    return block_of<T>(t.p, t.p.key, t.p.pages.key, t.batch, t.kv_head, first + block * kPageBlock);
  }
  template <class T>
  const T* values(int64_t block) const {
    return block_of<T>(t.p, t.p.value, t.p.pages.value, t.batch, t.kv_head, first + block * kPageBlock);
  }
  int64_t rows(int64_t block) const { return at_most(kPageBlock, count - block * kPageBlock); }
};

/// In float32, a block at a time brought into rows.
struct RowBlocks : Plain {
  template <class T>
  static void score(const Blocks& b, const float* query, int64_t width, float* scores, int64_t stride, T* spare) {
    const int64_t dim = b.t.p.head_dim;
    for (int64_t block = 0; block < b.blocks; ++block) {
      const int64_t rows = b.rows(block);
      read_keys(b.keys<T>(block), dim, rows, spare, dim);
      for (int64_t r = 0; r < b.t.rows; ++r) {
        for (int64_t key = 0; key < rows; ++key) {
          Vec sum = zero();
          for_vectors(dim, [&](int64_t e, int n) {
            sum = fma(load(query + r * width + e), load_up_to(spare + key * dim + e, n), sum);
          });
          scores[r * stride + block * kPageBlock + key] = reduce_add(sum);
        }
      }
    }
  }
  template <class T>
  static void weigh(const Blocks& b, const float* weights, int64_t stride, float* sums, int64_t columns, T* spare) {
    const int64_t dim = b.t.p.value_dim;
    for (int64_t block = 0; block < b.blocks; ++block) {
      const int64_t rows = b.rows(block);
      read_values(b.values<T>(block), dim, rows, spare, dim);
      for (int64_t r = 0; r < b.t.rows; ++r) {
        for_vectors(dim, [&](int64_t c, int n) {
          Vec sum = load(sums + r * columns + c);
          for (int64_t key = 0; key < rows; ++key) {
            const float weight = weights[r * stride + block * kPageBlock + key];
            sum = fma(splat(weight), load_up_to(spare + key * dim + c, n), sum);
          }
          store(sums + r * columns + c, sum);
        });
      }
    }
  }
};

#if MUDNN_LEVEL == 2
constexpr int kAhead = 4;  // blocks at once: streams from as many pages

MUDNN_INLINE __m512bh pair_of(const Bfloat16* p) {
  int pair = 0;
  memcpy(&pair, p, 4);
  return reinterpret_cast<__m512bh>(_mm512_set1_epi32(pair));
}

struct PairBlocks : Paired {
  static void score(
      const Blocks& b, const Bfloat16* query, int64_t width, float* scores, int64_t stride, Bfloat16* /*spare*/) {
    const int64_t steps = b.t.p.head_dim / 2;
    for (int64_t block = 0; block < b.blocks; block += kAhead) {
      const Bfloat16* keys[kAhead];
      const Bfloat16* next[kAhead];
      for (int i = 0; i < kAhead; ++i) {
        keys[i] = b.keys<Bfloat16>(at_most(b.blocks - 1, block + i));
        next[i] = b.keys<Bfloat16>(at_most(b.blocks - 1, block + kAhead + i));
      }
      for_rows(b.t.rows, [&]<int Rows>(int64_t r) {
        __m512 sums[Rows][kAhead];
#pragma GCC unroll 4
        for (int i = 0; i < Rows; ++i) {
#pragma GCC unroll 4
          for (int k = 0; k < kAhead; ++k) {
            sums[i][k] = _mm512_setzero_ps();
          }
        }
        for (int64_t s = 0; s < steps; ++s) {
          __m512bh key[kAhead];
#pragma GCC unroll 4
          for (int k = 0; k < kAhead; ++k) {
            key[k] = reinterpret_cast<__m512bh>(_mm512_loadu_si512(keys[k] + s * 2 * kPageBlock));
            _mm_prefetch(reinterpret_cast<const char*>(next[k] + s * 2 * kPageBlock), _MM_HINT_T0);
          }
#pragma GCC unroll 4
          for (int i = 0; i < Rows; ++i) {
            const __m512bh q = pair_of(query + (r + i) * width + 2 * s);
#pragma GCC unroll 4
            for (int k = 0; k < kAhead; ++k) {
              sums[i][k] = _mm512_dpbf16_ps(sums[i][k], q, key[k]);
            }
          }
        }
        for (int k = 0; k < kAhead && block + k < b.blocks; ++k) {
#pragma GCC unroll 4
          for (int i = 0; i < Rows; ++i) {
            _mm512_storeu_ps(scores + (r + i) * stride + (block + k) * kPageBlock, sums[i][k]);
          }
        }
      });
    }
  }

  static void weigh(
      const Blocks& b, const Bfloat16* weights, int64_t stride, float* sums, int64_t columns, Bfloat16* spare) {
    const int64_t dim = b.t.p.value_dim;
    for (int64_t block = 0; block < b.blocks; block += kAhead) {
      const int64_t here = at_most(kAhead, b.blocks - block);
      const Bfloat16* values[kAhead];
      const Bfloat16* next[kAhead];
      for (int i = 0; i < kAhead; ++i) {
        const int64_t at = at_most(b.blocks - 1, block + i);
        values[i] = b.values<Bfloat16>(at);
        next[i] = b.values<Bfloat16>(at_most(b.blocks - 1, block + kAhead + i));
        if (b.rows(at) < kPageBlock) {
          values[i] = with_zeros(values[i], dim, b.rows(at), spare);
        }
      }
      for_rows(b.t.rows, [&]<int Rows>(int64_t r) {
        for (int64_t c = 0; c < dim; c += 64) {
          __mmask16 live[4];
          __m512 total[Rows][4];
#pragma GCC unroll 4
          for (int v = 0; v < 4; ++v) {
            live[v] = first_lanes(static_cast<int>(at_least(0, at_most(16, dim - c - 16 * v))));
#pragma GCC unroll 4
            for (int i = 0; i < Rows; ++i) {
              total[i][v] = _mm512_maskz_loadu_ps(live[v], sums + (r + i) * columns + c + 16 * v);
            }
          }
          for (int64_t k = 0; k < here; ++k) {
            for (int64_t pair = 0; pair < kPageBlock / 2; ++pair) {
              const int64_t offset = (pair * dim + c) * 2;
              __m512bh value[4];
#pragma GCC unroll 4
              for (int v = 0; v < 4; ++v) {
                value[v] = reinterpret_cast<__m512bh>(_mm512_maskz_loadu_epi32(live[v], values[k] + offset + 32 * v));
                _mm_prefetch(reinterpret_cast<const char*>(next[k] + offset + 32 * v), _MM_HINT_T0);
              }
#pragma GCC unroll 4
              for (int i = 0; i < Rows; ++i) {
                const __m512bh weight = pair_of(weights + (r + i) * stride + (block + k) * kPageBlock + 2 * pair);
#pragma GCC unroll 4
                for (int v = 0; v < 4; ++v) {
                  total[i][v] = _mm512_dpbf16_ps(total[i][v], weight, value[v]);
                }
              }
            }
          }
#pragma GCC unroll 4
          for (int v = 0; v < 4; ++v) {
#pragma GCC unroll 4
            for (int i = 0; i < Rows; ++i) {
              _mm512_mask_storeu_ps(sums + (r + i) * columns + c + 16 * v, live[v], total[i][v]);
            }
          }
        }
      });
    }
  }

  /// A block of values of which only `rows` belong to the sequence: the others may be NaN, which no weight hides.
  static const Bfloat16* with_zeros(const Bfloat16* block, int64_t dim, int64_t rows, Bfloat16* spare) {
    memset(spare, 0, static_cast<size_t>(kPageBlock * dim) * sizeof *spare);
    memcpy(spare, block, static_cast<size_t>(rows / 2 * 2 * dim) * sizeof *spare);
    for (int64_t c = 0; rows % 2 != 0 && c < dim; ++c) {
      spare[value_in_block(true, dim, rows - 1, c)] = block[value_in_block(true, dim, rows - 1, c)];
    }
    return spare;
  }
};
#endif

template <class Kind, class T>
void run_split(const AttentionProblem& p, const AttentionPartials& partials, int64_t task) {
  const int64_t split = task % partials.splits;
  const Task t(p, task / partials.splits, split * partials.split_keys, partials.split_keys);
  float* partial = partials.data + task * partial_size(p);
  float* sums = partial + 2 * kDecodeRows;
  const int64_t columns = round_up(p.value_dim, Vec::kLanes);
  for (int64_t r = 0; r < t.rows; ++r) {
    partial[2 * r] = kMinusInfinity;
    partial[2 * r + 1] = 0;
  }
  memset(sums, 0, static_cast<size_t>(t.rows * columns) * sizeof(float));
  if (t.count <= 0 || t.rows == 0) {
    return;
  }
  const Blocks blocks(t);
  const int64_t padded = blocks.blocks * kPageBlock;
  const int64_t width = Kind::query_width(p.head_dim);
  const int64_t spare_size = kPageBlock * at_least(p.head_dim, p.value_dim);
  char* memory = static_cast<char*>(scratch(
      1,
      static_cast<size_t>(t.rows * padded) * (sizeof(float) + sizeof(typename Kind::Weight)) +
          static_cast<size_t>(t.rows * width) * sizeof(typename Kind::Query) +
          static_cast<size_t>(spare_size) * sizeof(T) + 256));
  float* scores = reinterpret_cast<float*>(memory);
  auto* weights = reinterpret_cast<typename Kind::Weight*>(scores + t.rows * padded);
  auto* query = reinterpret_cast<typename Kind::Query*>(weights + t.rows * padded);
  T* spare = reinterpret_cast<T*>(query + t.rows * width);
  Kind::template copy<T>(t, query);
  Kind::score(blocks, query, width, scores, padded, spare);
  const float factor = softmax_factor(p);
  const bool hides = p.left >= 0 || p.right >= 0;
  for (int64_t r = 0; r < t.rows; ++r) {
    float* row = scores + r * padded;
    for (int64_t i = blocks.count; i < padded; ++i) {
      row[i] = kMinusInfinity;
    }
    if (finishes_scores(p)) {
      finish_scores(p, row, t.batch, t.head(r), t.query(r), blocks.first, blocks.count);
    }
    if (hides) {
      hide_scores(p, t.sequence, row, t.batch, t.head(r), t.query(r), blocks.first, blocks.count);
    }
    Vec highest = splat(kMinusInfinity);
    for (int64_t i = 0; i < padded; i += Vec::kLanes) {
      highest = max(highest, load(row + i));
    }
    const float maximum = reduce_max(highest);
    const Vec shift = splat(maximum == kMinusInfinity ? 0.0f : maximum);
    Vec total = zero();
    for (int64_t i = 0; i < padded; i += Vec::kLanes) {
      const Vec weight = exp2_to_0<Kind::kDegree>((load(row + i) - shift) * splat(factor));
      total = total + weight;
      Kind::store_weight(weights + r * padded, i, weight);
    }
    partial[2 * r] = maximum;
    partial[2 * r + 1] = reduce_add(total);
  }
  Kind::weigh(blocks, weights, padded, sums, columns, spare);
}

void run(const AttentionProblem& problem, const AttentionPartials& partials, int64_t begin, int64_t end) {
  for (int64_t task = begin; task < end; ++task) {
    switch (problem.dtype) {
      case Dtype::kFloat32:
        run_split<RowBlocks, float>(problem, partials, task);
        break;
      case Dtype::kFloat16:
        run_split<RowBlocks, Float16>(problem, partials, task);
        break;
      case Dtype::kBfloat16:
#if MUDNN_LEVEL == 2
        run_split<PairBlocks, Bfloat16>(problem, partials, task);
#else
        run_split<RowBlocks, Bfloat16>(problem, partials, task);
#endif
        break;
    }
  }
}

}  // namespace

MUDNN_TABLE(AttentionPagedKernels, attention_paged) = {run};

}  // namespace mudnn
