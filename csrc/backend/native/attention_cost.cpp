#include "backend/native/attention_cost.h"

#include <ATen/core/Tensor.h>

#include <algorithm>

namespace musa {
namespace {

/// The sum of clamp(i, 0, top) over i below n.
double ramp(int64_t n, int64_t top) {
  if (n <= 0) {
    return 0;
  }
  const auto rising = static_cast<double>(std::min(n, top + 1));
  return rising * (rising - 1) / 2 + (static_cast<double>(n) - rising) * static_cast<double>(top);
}

/// The same over i from `first`, `count` of them.
double ramp(int64_t first, int64_t count, int64_t top) { return ramp(first + count, top) - ramp(first, top); }

struct Window {
  int64_t left, right, global_keys;
  int64_t offset;  // position of query 0
};

/// What queries see of keys: pairs, and keys that any of them sees.
struct Seen {
  double pairs, keys;
};
Seen seen(int64_t queries, int64_t keys, const Window& w) {
  const int64_t hideable = std::max<int64_t>(0, keys - w.global_keys);
  const auto count = [&](int64_t first, int64_t rows) {
    const double below =
        w.right >= 0 ? ramp(first + w.right + 1, rows, keys) : static_cast<double>(rows) * static_cast<double>(keys);
    const double hidden = w.left >= 0 ? ramp(first - w.left - w.global_keys, rows, hideable) : 0;
    return below - hidden;
  };
  if (queries == 0 || keys == 0) {
    return {0, 0};
  }
  // From what the first query sees first to what the last sees last.
  const int64_t last = w.offset + queries - 1;
  const int64_t high = w.right >= 0 ? std::clamp<int64_t>(last + w.right + 1, 0, keys) : keys;
  const int64_t hidden = w.left >= 0 ? std::clamp<int64_t>(w.offset - w.left - w.global_keys, 0, hideable) : 0;
  return {count(w.offset, queries), static_cast<double>(std::max<int64_t>(0, high - hidden))};
}

double bytes_of(const at::Tensor& x) { return static_cast<double>(x.numel()) * static_cast<double>(x.itemsize()); }
double bytes_of(const c10::IValue& x) { return x.isTensor() && x.toTensor().defined() ? bytes_of(x.toTensor()) : 0; }

struct Sizes {
  double rows;  // of all queries and heads
  double head_dim, value_dim, itemsize;
};

OpCost cost(const Sizes& s, double keys_a_row, double key_bytes, double other_bytes) {
  constexpr double kLogSumExpBytes = 4;
  return {
      .flops = 2 * s.rows * keys_a_row * (s.head_dim + s.value_dim),
      .bytes = s.rows * ((s.head_dim + s.value_dim) * s.itemsize + kLogSumExpBytes) + key_bytes + other_bytes};
}

}  // namespace

OpCost attention_cost(const c10::IValue* arguments) {
  const at::Tensor& query = arguments[0].toTensor();
  const at::Tensor& key = arguments[1].toTensor();
  const at::Tensor& value = arguments[2].toTensor();
  if (query.dim() != 4 || key.dim() != 4 || value.dim() != 4) {
    return {};  // refused
  }
  const int64_t queries = query.size(2);
  const int64_t keys = key.size(2);
  const bool align_end = arguments[7].toBool();
  const Seen live = seen(
      queries, keys,
      {arguments[4].toInt(), arguments[5].toInt(), arguments[6].toInt(), align_end ? keys - queries : 0});
  const double share = keys == 0 ? 0 : live.keys / static_cast<double>(keys);
  const Sizes sizes{
      static_cast<double>(query.size(0) * query.size(1) * queries), static_cast<double>(query.size(3)),
      static_cast<double>(value.size(3)), static_cast<double>(query.itemsize())};
  return cost(
      sizes, queries == 0 ? 0 : live.pairs / static_cast<double>(queries), share * (bytes_of(key) + bytes_of(value)),
      bytes_of(arguments[9]) + bytes_of(arguments[10]) + bytes_of(arguments[11]));
}

OpCost attention_varlen_cost(const c10::IValue* arguments) {
  const at::Tensor& query = arguments[0].toTensor();
  const at::Tensor& key = arguments[1].toTensor();
  const at::Tensor& value = arguments[2].toTensor();
  const at::Tensor& starts = arguments[3].toTensor();
  if (query.dim() != 3 || key.dim() != 3 || value.dim() != 3 || starts.dim() != 1) {
    return {};  // refused
  }
  const int64_t sequences = std::max<int64_t>(1, starts.size(0) - 1);
  const int64_t queries = (query.size(0) + sequences - 1) / sequences;
  const int64_t keys = (key.size(0) + sequences - 1) / sequences;
  const Seen live =
      seen(queries, keys, {arguments[8].toInt(), arguments[9].toInt(), arguments[10].toInt(), keys - queries});
  const double share = keys == 0 ? 0 : live.keys / static_cast<double>(keys);
  const Sizes sizes{
      static_cast<double>(query.size(0) * query.size(1)), static_cast<double>(query.size(2)),
      static_cast<double>(value.size(2)), static_cast<double>(query.itemsize())};
  return cost(
      sizes, queries == 0 ? 0 : live.pairs / static_cast<double>(queries), share * (bytes_of(key) + bytes_of(value)),
      bytes_of(starts) + bytes_of(arguments[4]) + bytes_of(arguments[12]));
}

}  // namespace musa
