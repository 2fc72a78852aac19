// Pages of keys and values: the one place that says where a number lies in a page.
//
// Page tensors are contiguous [pages, kv_heads, page_size, dim]; page_size is a multiple of kPageBlock, and a slot is
// page * page_size + position in the page. The part of a page that belongs to one head consists of blocks of kPageBlock
// tokens, kPageBlock * dim numbers each. Numbers of 16 bits lie in a block in the order in which products of pairs take
// them, so that attention reads pages where they lie: keys as [dim / 2][kPageBlock][2] (pairs of neighbouring elements,
// of all tokens), values as [kPageBlock / 2][dim][2] (pairs of neighbouring tokens, for all elements). Wider numbers
// lie row by row, [kPageBlock][dim].
#pragma once

#include "mudnn/parallel.h"
#include "mudnn/types.h"

namespace mudnn {

constexpr int64_t kPageBlock = 16;

struct KvPages {
  int64_t kv_heads;
  int64_t page_size;
  int64_t dim;  // even for numbers of 16 bits
};

// Kernels of all instruction sets use these, see kernels/vec.h.
namespace {

/// Where the block starts that holds a token: element offset in the page tensor.
inline int64_t page_block(const KvPages& pages, int64_t page, int64_t head, int64_t position) {
  return ((page * pages.kv_heads + head) * pages.page_size + position / kPageBlock * kPageBlock) * pages.dim;
}
/// Element offsets in a block, of a token 0 .. kPageBlock - 1.
inline int64_t key_in_block(bool paired, int64_t dim, int64_t token, int64_t element) {
  return paired ? (element / 2 * kPageBlock + token) * 2 + element % 2 : token * dim + element;
}
inline int64_t value_in_block(bool paired, int64_t dim, int64_t token, int64_t element) {
  return paired ? (token / 2 * dim + element) * 2 + token % 2 : token * dim + element;
}

}  // namespace

/// Rows of tokens [tokens, kv_heads, dim], the numbers of a head adjacent; strides in elements.
struct KvRows {
  void* data;
  int64_t token, head;
};

struct KvAppendProblem {
  Dtype dtype;
  KvPages key, value;  // differ in dim only
  void* key_pages;
  void* value_pages;
  KvRows key_rows, value_rows;  // only read
  const int64_t* slots;  // [tokens], below 0: the token is left out
  int64_t tokens;
};
void append_to_pages(const KvAppendProblem& problem, const Parallel& parallel);

struct KvGatherProblem {
  Dtype dtype;
  KvPages key, value;
  const void* key_pages;
  const void* value_pages;
  KvRows key_rows, value_rows;  // only written
  const int32_t* table;  // [sequences, table_width]
  int64_t table_width;
  const int64_t* starts;  // [sequences + 1]: rows of each sequence, which has starts[i + 1] - starts[i] tokens
  int64_t sequences;
  int64_t most;  // tokens of any sequence
};
void gather_from_pages(const KvGatherProblem& problem, const Parallel& parallel);

struct KvPagesKernels {
  /// Task = part of kKvPart tokens * kv_heads + head.
  void (*append)(const KvAppendProblem& problem, int64_t begin, int64_t end);
  /// Task = (sequence * parts + part) * kv_heads + head.
  void (*gather)(const KvGatherProblem& problem, int64_t parts, int64_t begin, int64_t end);
};
constexpr int64_t kKvPart = 128;

}  // namespace mudnn
