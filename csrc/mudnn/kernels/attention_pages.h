// Keys and values of attention in pages: where they lie, and how they come into the order of tiles' products.
#pragma once

#include "mudnn/kernels/attention_tile.h"
#include "mudnn/kernels/page_blocks.h"
#include "mudnn/scratch.h"

namespace mudnn {
namespace {

/// The block that holds a key of a sequence, in the page tensor `rows`.
template <class T>
MUDNN_INLINE const T* block_of(
    const AttentionProblem& p, const AttentionRows& rows, const KvPages& pages, int64_t batch, int64_t kv_head,
    int64_t key) {
  const int64_t page = p.pages.table[batch * p.pages.width + key / pages.page_size];
  return static_cast<const T*>(rows.data) + page_block(pages, page, kv_head, key % pages.page_size);
}

/// Keys first .. first + count, `first` at the start of a block, as pack_transposed() and pack_straight() leave rows:
/// panels of key_steps and value_steps rows.
template <class Kind, class T>
inline void pack_pages(
    const AttentionProblem& p, int64_t batch, int64_t kv_head, int64_t first, int64_t count, typename Kind::Item* keys,
    typename Kind::Item* values, [[maybe_unused]] int64_t key_steps, int64_t value_steps) {
  if constexpr (Kind::kDepth == 2) {
#if MUDNN_LEVEL == 2
    static_assert(kPageBlock == 16);
    // Blocks are made of the panels' items already: 16 of a key panel's columns, 8 of a value panel's rows.
    const int64_t padded = round_up(count, kPanel);
    for (int64_t t = 0; t < padded; t += kPageBlock) {
      uint32_t* panel = keys + t / kPanel * (kPanel * key_steps) + t % kPanel;
      const T* block = t < count ? block_of<T>(p, p.key, p.pages.key, batch, kv_head, first + t) : nullptr;
      const __mmask16 live = first_lanes(static_cast<int>(at_least(0, at_most(kPageBlock, count - t))));
      for (int64_t k = 0; k < key_steps; ++k) {
        const __m512i items =
            block != nullptr ? _mm512_maskz_loadu_epi32(live, block + k * 2 * kPageBlock) : _mm512_setzero_si512();
        _mm512_storeu_si512(panel + k * kPanel, items);
      }
    }
    for (int64_t t = 0; t < value_steps * 2; t += 2) {
      const T* block = t < count
          ? block_of<T>(p, p.value, p.pages.value, batch, kv_head, first + t) + t % kPageBlock * p.value_dim
          : nullptr;
      const __m512i kept = _mm512_set1_epi32(t + 1 < count ? -1 : 0xffff);
      for (int64_t c = 0; c < p.value_dim; c += 16) {
        const __mmask16 live = first_lanes(static_cast<int>(at_most(16, p.value_dim - c)));
        const __m512i items = block != nullptr ? _mm512_and_si512(kept, _mm512_maskz_loadu_epi32(live, block + 2 * c))
                                               : _mm512_setzero_si512();
        _mm512_storeu_si512(values + c / kPanel * (kPanel * value_steps) + c % kPanel + t / 2 * kPanel, items);
      }
    }
#endif
  } else {
    const int64_t room = value_steps;
    T* key_rows = static_cast<T*>(scratch(3, static_cast<size_t>(room * (p.head_dim + p.value_dim)) * sizeof(T)));
    T* value_rows = key_rows + room * p.head_dim;
    for (int64_t t = 0; t < count; t += kPageBlock) {
      const int64_t rows = at_most(kPageBlock, count - t);
      read_keys(
          block_of<T>(p, p.key, p.pages.key, batch, kv_head, first + t), p.head_dim, rows, key_rows + t * p.head_dim,
          p.head_dim);
      read_values(
          block_of<T>(p, p.value, p.pages.value, batch, kv_head, first + t), p.value_dim, rows,
          value_rows + t * p.value_dim, p.value_dim);
    }
    pack_transposed<Kind>(keys, key_rows, p.head_dim, count, p.head_dim);
    pack_straight<Kind>(values, value_rows, p.value_dim, count, p.value_dim, room);
  }
}

}  // namespace
}  // namespace mudnn
