// Keys and values into pages and out of them.
#include "mudnn/kernels/dtypes.h"
#include "mudnn/kernels/page_blocks.h"

namespace mudnn {
namespace {

/// Whether tokens t .. t + kPageBlock go to a whole block.
inline bool fills_block(const int64_t* slots, int64_t t, int64_t end) {
  if (t + kPageBlock > end || slots[t] < 0 || slots[t] % kPageBlock != 0) {
    return false;
  }
  for (int64_t i = 1; i < kPageBlock; ++i) {
    if (slots[t + i] != slots[t] + i) {
      return false;
    }
  }
  return true;
}

template <class T>
void append_task(const KvAppendProblem& p, int64_t part, int64_t head) {
  const int64_t end = p.tokens < (part + 1) * kKvPart ? p.tokens : (part + 1) * kKvPart;
  for (int64_t t = part * kKvPart; t < end;) {
    const int64_t slot = p.slots[t];
    if (slot < 0) {
      ++t;
      continue;
    }
    const int64_t page = slot / p.key.page_size;
    const int64_t position = slot % p.key.page_size;
    T* keys = static_cast<T*>(p.key_pages) + page_block(p.key, page, head, position);
    T* values = static_cast<T*>(p.value_pages) + page_block(p.value, page, head, position);
    const T* key = static_cast<const T*>(p.key_rows.data) + t * p.key_rows.token + head * p.key_rows.head;
    const T* value = static_cast<const T*>(p.value_rows.data) + t * p.value_rows.token + head * p.value_rows.head;
    if (fills_block(p.slots, t, end)) {
      write_keys(keys, p.key.dim, key, p.key_rows.token);
      write_values(values, p.value.dim, value, p.value_rows.token);
      t += kPageBlock;
      continue;
    }
    const int64_t token = position % kPageBlock;
    if constexpr (kPaired<T>) {
      for (int64_t e = 0; e < p.key.dim; e += 2) {
        memcpy(keys + key_in_block(true, p.key.dim, token, e), key + e, 4);
      }
      for (int64_t e = 0; e < p.value.dim; ++e) {
        values[value_in_block(true, p.value.dim, token, e)] = value[e];
      }
    } else {
      memcpy(keys + token * p.key.dim, key, static_cast<size_t>(p.key.dim) * sizeof(T));
      memcpy(values + token * p.value.dim, value, static_cast<size_t>(p.value.dim) * sizeof(T));
    }
    ++t;
  }
}

template <class T>
void gather_task(const KvGatherProblem& p, int64_t sequence, int64_t part, int64_t head) {
  const int64_t start = p.starts[sequence];
  const int64_t count = p.starts[sequence + 1] - start;
  const int64_t end = count < (part + 1) * kKvPart ? count : (part + 1) * kKvPart;
  for (int64_t t = part * kKvPart; t < end; t += kPageBlock) {
    const int64_t page = p.table[sequence * p.table_width + t / p.key.page_size];
    const int64_t position = t % p.key.page_size;
    const int64_t rows = end - t < kPageBlock ? end - t : kPageBlock;
    read_keys(
        static_cast<const T*>(p.key_pages) + page_block(p.key, page, head, position), p.key.dim, rows,
        static_cast<T*>(p.key_rows.data) + (start + t) * p.key_rows.token + head * p.key_rows.head, p.key_rows.token);
    read_values(
        static_cast<const T*>(p.value_pages) + page_block(p.value, page, head, position), p.value.dim, rows,
        static_cast<T*>(p.value_rows.data) + (start + t) * p.value_rows.token + head * p.value_rows.head,
        p.value_rows.token);
  }
}

void append(const KvAppendProblem& problem, int64_t begin, int64_t end) {
  for_dtype(problem.dtype, [&]<class T>(T) {
    for (int64_t task = begin; task < end; ++task) {
      append_task<T>(problem, task / problem.key.kv_heads, task % problem.key.kv_heads);
    }
  });
}

void gather(const KvGatherProblem& problem, int64_t parts, int64_t begin, int64_t end) {
  for_dtype(problem.dtype, [&]<class T>(T) {
    for (int64_t task = begin; task < end; ++task) {
      const int64_t rest = task / problem.key.kv_heads;
      gather_task<T>(problem, rest / parts, rest % parts, task % problem.key.kv_heads);
    }
  });
}

}  // namespace

MUDNN_TABLE(KvPagesKernels, kv_pages) = {append, gather};

}  // namespace mudnn
