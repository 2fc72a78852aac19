// musa::attention, musa::attention_varlen and musa::merge_attention_states.
#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/exp.h>
#include <ATen/ops/logaddexp.h>
#include <ATen/ops/logsumexp.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/tanh.h>
#include <ATen/ops/where.h>
#include <torch/library.h>

#include <cmath>
#include <limits>

#include "backend/native/attention.h"
#include "backend/native/attention_cost.h"
#include "backend/native/attention_variants.h"
#include "backend/native/differentiable.h"
#include "backend/native/kernels.h"
#include "backend/native/tensors.h"
#include "mudnn/attention.h"

namespace musa {
namespace {

using Pair = std::tuple<at::Tensor, at::Tensor>;
using Optional = std::optional<at::Tensor>;

bool given(const Optional& tensor) { return tensor.has_value() && tensor->defined(); }

/// What a query sees of the keys, as in the operators' schemas.
struct Window {
  int64_t left, right, global_keys;
};

void check_window(const char* op, const Window& window, double softcap) {
  TORCH_CHECK_VALUE(
      window.left >= -1 && window.right >= -1 && window.global_keys >= 0 && softcap >= 0, op,
      " takes left and right of at least -1 (no bound), global_keys and softcap of at least 0, got ", window.left, ", ",
      window.right, ", ", window.global_keys, " and ", softcap);
}

void check_sinks(const char* op, const Optional& sinks, const c10::SymInt& heads) {
  TORCH_CHECK_VALUE(
      !given(sinks) || (sinks->dim() == 1 && sinks->sym_size(0) == heads), op, " takes one sink for each of ", heads,
      " query heads, got sinks of shape ", given(sinks) ? sinks->sym_sizes() : c10::SymIntArrayRef());
}

// [queries, keys]: which pairs attend; none where all do.
Optional visible(const at::Tensor& like, int64_t queries, int64_t keys, int64_t offset, const Window& window) {
  if (window.left < 0 && window.right < 0) {
    return std::nullopt;
  }
  const auto options = like.options().dtype(at::kLong).requires_grad(false);
  const at::Tensor position = at::arange(queries, options).unsqueeze(1) + offset;
  const at::Tensor key = at::arange(keys, options).unsqueeze(0);
  at::Tensor live = at::ones({queries, keys}, options.dtype(at::kBool));
  if (window.left >= 0) {
    live = live.logical_and((key >= position - window.left).logical_or(key < window.global_keys));
  }
  if (window.right >= 0) {
    live = live.logical_and(key <= position + window.right);
  }
  return live;
}

/// The formula, for query [.., H, M, E], key [.., Hkv, N, E] and value [.., Hkv, N, Ev]; on any device.
Pair formula(
    const at::Tensor& query, const at::Tensor& key, const at::Tensor& value, std::optional<double> scale,
    const Optional& live, double softcap, const Optional& sinks, const Optional& mask) {
  const auto wide = query.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
  const int64_t group = query.size(-3) / key.size(-3);
  const at::Tensor k = key.to(wide).repeat_interleave(group, -3);
  const at::Tensor v = value.to(wide).repeat_interleave(group, -3);
  at::Tensor scores = at::matmul(query.to(wide), k.transpose(-1, -2)) *
      scale.value_or(1.0 / std::sqrt(static_cast<double>(query.size(-1))));
  if (softcap > 0) {
    scores = at::tanh(scores / softcap) * softcap;
  }
  constexpr double kDead = -std::numeric_limits<double>::infinity();
  if (given(mask)) {
    scores =
        mask->scalar_type() == at::kBool ? scores.masked_fill(mask->logical_not(), kDead) : scores + mask->to(wide);
  }
  if (given(live)) {
    scores = scores.masked_fill(live->logical_not(), kDead);
  }
  at::Tensor all = scores;
  if (given(sinks)) {
    std::vector<int64_t> sizes = scores.sizes().vec();
    sizes.back() = 1;
    all = at::cat({scores, sinks->to(wide).view({-1, 1, 1}).expand(sizes)}, -1);
  }
  const at::Tensor logsumexp = at::logsumexp(all, -1);
  const at::Tensor shift = logsumexp.masked_fill(logsumexp == kDead, 0.0).unsqueeze(-1);
  return {at::matmul(at::exp(scores - shift), v).to(query.scalar_type()), logsumexp};
}

mudnn::AttentionProblem problem_of(
    const at::Tensor& q, const at::Tensor& v, std::optional<double> scale, const Window& window, double softcap,
    const at::Tensor& out) {
  return {
      .dtype = *mudnn_dtype(q.scalar_type()),
      .batches = 1,
      .heads = 0,
      .kv_heads = 0,
      .queries = 0,
      .keys = 0,
      .head_dim = q.size(-1),
      .value_dim = v.size(-1),
      .query = {},
      .key = {},
      .value = {},
      .out = out.mutable_data_ptr(),
      .out_batch = 0,
      .out_head = 0,
      .out_row = 0,
      .scale = static_cast<float>(scale.value_or(1.0 / std::sqrt(static_cast<double>(q.size(-1))))),
      .softcap = static_cast<float>(softcap),
      .left = window.left,
      .right = window.right,
      .global_keys = window.global_keys,
      .mask = {},
      .blocks = {}};
}

at::Tensor with_contiguous_rows(const at::Tensor& x) { return x.stride(-1) == 1 ? x : x.contiguous(); }

// ---- attention
// -------------------------------------------------------------------------------------------------------

void check_attention(
    const at::Tensor& query, const at::Tensor& key, const at::Tensor& value, const Window& window, double softcap,
    const Optional& sinks, const Optional& block_mask, c10::IntArrayRef block_size) {
  TORCH_CHECK_VALUE(
      query.dim() == 4 && key.dim() == 4 && value.dim() == 4 && key.sym_size(0) == query.sym_size(0) &&
          value.sym_size(0) == query.sym_size(0) && key.sym_size(1) > 0 && query.sym_size(1) % key.sym_size(1) == 0 &&
          value.sym_size(1) == key.sym_size(1) && value.sym_size(2) == key.sym_size(2) &&
          key.sym_size(3) == query.sym_size(3),
      "attention takes query [batch, heads, queries, dim], key [batch, kv heads, keys, dim] and value [batch, kv "
      "heads, "
      "keys, value dim] with kv heads that divide heads, got ",
      query.sym_sizes(), ", ", key.sym_sizes(), " and ", value.sym_sizes());
  check_window("attention", window, softcap);
  check_sinks("attention", sinks, query.sym_size(1));
  if (given(block_mask)) {
    TORCH_CHECK_VALUE(
        block_size.size() == 2 && block_size[0] > 0 && block_size[1] > 0,
        "attention takes a block_size of two numbers above 0, got ", block_size);
    const c10::SymInt rows = (query.sym_size(2) + block_size[0] - 1) / block_size[0];
    const c10::SymInt columns = (key.sym_size(2) + block_size[1] - 1) / block_size[1];
    const at::Tensor& blocks = *block_mask;
    TORCH_CHECK_VALUE(
        blocks.scalar_type() == at::kBool && blocks.dim() == 4 &&
            (blocks.sym_size(0) == 1 || blocks.sym_size(0) == query.sym_size(0)) &&
            (blocks.sym_size(1) == 1 || blocks.sym_size(1) == query.sym_size(1)) && blocks.sym_size(2) == rows &&
            blocks.sym_size(3) == columns,
        "attention takes a bool block_mask [batch or 1, heads or 1, ", rows, ", ", columns, "], got ",
        blocks.scalar_type(), " ", blocks.sym_sizes());
  }
}

Pair attention_reference(
    const at::Tensor& query, const at::Tensor& key, const at::Tensor& value, std::optional<double> scale, int64_t left,
    int64_t right, int64_t global_keys, bool align_end, double softcap, const Optional& sinks, const Optional& mask,
    const Optional& block_mask, c10::IntArrayRef block_size) {
  const Window window{left, right, global_keys};
  check_attention(query, key, value, window, softcap, sinks, block_mask, block_size);
  const int64_t offset = align_end ? key.size(2) - query.size(2) : 0;
  Optional live = visible(query, query.size(2), key.size(2), offset, window);
  if (given(block_mask)) {
    const at::Tensor pairs = block_mask->repeat_interleave(block_size[0], 2)
                                 .narrow(2, 0, query.size(2))
                                 .repeat_interleave(block_size[1], 3)
                                 .narrow(3, 0, key.size(2));
    live = given(live) ? live->logical_and(pairs) : pairs;
  }
  return formula(query, key, value, scale, live, softcap, sinks, mask);
}

Pair attention_meta(
    const at::Tensor& query, const at::Tensor& key, const at::Tensor& value, std::optional<double> /*scale*/,
    int64_t left, int64_t right, int64_t global_keys, bool /*align_end*/, double softcap, const Optional& sinks,
    const Optional& /*mask*/, const Optional& block_mask, c10::IntArrayRef block_size) {
  check_attention(query, key, value, {left, right, global_keys}, softcap, sinks, block_mask, block_size);
  const auto wide = query.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
  return {
      at::empty_symint({query.sym_size(0), query.sym_size(1), query.sym_size(2), value.sym_size(3)}, query.options()),
      at::empty_symint({query.sym_size(0), query.sym_size(1), query.sym_size(2)}, query.options().dtype(wide))};
}

Pair attention(
    const at::Tensor& query, const at::Tensor& key, const at::Tensor& value, std::optional<double> scale, int64_t left,
    int64_t right, int64_t global_keys, bool align_end, double softcap, const Optional& sinks, const Optional& mask,
    const Optional& block_mask, c10::IntArrayRef block_size) {
  if (!attention_fits(query, key, value, mask)) {
    note_reference();
    return attention_reference(
        query, key, value, scale, left, right, global_keys, align_end, softcap, sinks, mask, block_mask, block_size);
  }
  auto [out, logsumexp] = attention_meta(
      query, key, value, scale, left, right, global_keys, align_end, softcap, sinks, mask, block_mask, block_size);
  const at::Tensor sink_numbers = given(sinks) ? sinks->to(at::kFloat).contiguous() : at::Tensor();
  const at::Tensor blocks = given(block_mask) ? block_mask->contiguous() : at::Tensor();
  AttentionExtras extras{
      .left = left,
      .right = right,
      .global_keys = global_keys,
      .align_end = align_end,
      .softcap = softcap,
      .sinks = sink_numbers,
      .block_mask = blocks,
      .block_queries = blocks.defined() ? block_size[0] : 1,
      .block_keys = blocks.defined() ? block_size[1] : 1};
  run_attention(query, key, value, mask, extras, scale, out, logsumexp);
  return {std::move(out), std::move(logsumexp)};
}

// ---- attention_varlen
// ------------------------------------------------------------------------------------------------

void check_varlen(
    const at::Tensor& query, const at::Tensor& key, const at::Tensor& value, const at::Tensor& query_starts,
    const at::Tensor& key_starts, const Window& window, double softcap, const Optional& sinks) {
  TORCH_CHECK_VALUE(
      query.dim() == 3 && key.dim() == 3 && value.dim() == 3 && key.sym_size(1) > 0 &&
          query.sym_size(1) % key.sym_size(1) == 0 && value.sym_size(1) == key.sym_size(1) &&
          value.sym_size(0) == key.sym_size(0) && key.sym_size(2) == query.sym_size(2),
      "attention_varlen takes query [tokens, heads, dim], key [key tokens, kv heads, dim] and value [key tokens, kv "
      "heads, value dim] with kv heads that divide heads, got ",
      query.sym_sizes(), ", ", key.sym_sizes(), " and ", value.sym_sizes());
  TORCH_CHECK_VALUE(
      query_starts.dim() == 1 && query_starts.scalar_type() == at::kInt && key_starts.scalar_type() == at::kInt &&
          query_starts.sym_sizes() == key_starts.sym_sizes() && query_starts.sym_size(0) >= 1,
      "attention_varlen takes query_starts and key_starts of int32 [sequences + 1], got ", query_starts.scalar_type(),
      " ", query_starts.sym_sizes(), " and ", key_starts.scalar_type(), " ", key_starts.sym_sizes());
  check_window("attention_varlen", window, softcap);
  check_sinks("attention_varlen", sinks, query.sym_size(1));
}

/// Starts that don't fit would send the kernel out of its tensors.
void check_starts(const char* name, const at::Tensor& starts, int64_t rows, int64_t most) {
  const int32_t* start = starts.const_data_ptr<int32_t>();
  const int64_t last = starts.size(0) - 1;
  TORCH_CHECK_VALUE(
      start[0] == 0 && start[last] == rows, "attention_varlen takes ", name, " from 0 to the number of tokens, ", rows,
      ", got ", start[0], " to ", start[last]);
  for (int64_t i = 0; i < last; ++i) {
    TORCH_CHECK_VALUE(
        start[i] <= start[i + 1] && start[i + 1] - start[i] <= most, "attention_varlen: sequence ", i, " has ",
        start[i + 1] - start[i], " tokens by its ", name, ", accepted are 0 to ", most, " (max_queries, max_keys)");
  }
}

Pair varlen_reference(
    const at::Tensor& query, const at::Tensor& key, const at::Tensor& value, const at::Tensor& query_starts,
    const at::Tensor& key_starts, int64_t max_queries, int64_t max_keys, std::optional<double> scale, int64_t left,
    int64_t right, int64_t global_keys, double softcap, const Optional& sinks) {
  const Window window{left, right, global_keys};
  check_varlen(query, key, value, query_starts, key_starts, window, softcap, sinks);
  const at::Tensor q_starts = query_starts.cpu();
  const at::Tensor k_starts = key_starts.cpu();
  check_starts("query_starts", q_starts, query.size(0), max_queries);
  check_starts("key_starts", k_starts, key.size(0), max_keys);
  const int32_t* qs = q_starts.const_data_ptr<int32_t>();
  const int32_t* ks = k_starts.const_data_ptr<int32_t>();
  std::vector<at::Tensor> outs, sums;
  for (int64_t i = 0; i + 1 < q_starts.size(0); ++i) {
    const int64_t queries = qs[i + 1] - qs[i];
    const int64_t keys = ks[i + 1] - ks[i];
    auto [out, logsumexp] = formula(
        query.narrow(0, qs[i], queries).transpose(0, 1), key.narrow(0, ks[i], keys).transpose(0, 1),
        value.narrow(0, ks[i], keys).transpose(0, 1), scale, visible(query, queries, keys, keys - queries, window),
        softcap, sinks, std::nullopt);
    outs.push_back(out.transpose(0, 1));
    sums.push_back(std::move(logsumexp));
  }
  const auto wide = query.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
  if (outs.empty()) {
    return {
        at::empty({0, query.size(1), value.size(2)}, query.options()),
        at::empty({query.size(1), 0}, query.options().dtype(wide))};
  }
  return {at::cat(outs, 0), at::cat(sums, 1)};
}

Pair varlen_meta(
    const at::Tensor& query, const at::Tensor& key, const at::Tensor& value, const at::Tensor& query_starts,
    const at::Tensor& key_starts, int64_t /*max_queries*/, int64_t /*max_keys*/, std::optional<double> /*scale*/,
    int64_t left, int64_t right, int64_t global_keys, double softcap, const Optional& sinks) {
  check_varlen(query, key, value, query_starts, key_starts, {left, right, global_keys}, softcap, sinks);
  const auto wide = query.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
  return {
      at::empty_symint({query.sym_size(0), query.sym_size(1), value.sym_size(2)}, query.options()),
      at::empty_symint({query.sym_size(1), query.sym_size(0)}, query.options().dtype(wide))};
}

Pair varlen(
    const at::Tensor& query, const at::Tensor& key, const at::Tensor& value, const at::Tensor& query_starts,
    const at::Tensor& key_starts, int64_t max_queries, int64_t max_keys, std::optional<double> scale, int64_t left,
    int64_t right, int64_t global_keys, double softcap, const Optional& sinks) {
  const auto dtype = mudnn_dtype(query.scalar_type());
  if (!dtype.has_value() || key.scalar_type() != query.scalar_type() || value.scalar_type() != query.scalar_type() ||
      query.size(-1) == 0 || value.size(-1) == 0) {
    note_reference();
    return varlen_reference(
        query, key, value, query_starts, key_starts, max_queries, max_keys, scale, left, right, global_keys, softcap,
        sinks);
  }
  auto [out, logsumexp] = varlen_meta(
      query, key, value, query_starts, key_starts, max_queries, max_keys, scale, left, right, global_keys, softcap,
      sinks);
  const at::Tensor qs = query_starts.contiguous();
  const at::Tensor ks = key_starts.contiguous();
  check_starts("query_starts", qs, query.size(0), max_queries);
  check_starts("key_starts", ks, key.size(0), max_keys);
  const at::Tensor q = with_contiguous_rows(query);
  const at::Tensor k = with_contiguous_rows(key);
  const at::Tensor v = with_contiguous_rows(value);
  const at::Tensor sink_numbers = given(sinks) ? sinks->to(at::kFloat).contiguous() : at::Tensor();
  mudnn::AttentionProblem problem = problem_of(q, v, scale, {left, right, global_keys}, softcap, out);
  const auto rows = [](const at::Tensor& x) {
    return mudnn::AttentionRows{.data = x.const_data_ptr(), .batch = 0, .head = x.stride(1), .row = x.stride(0)};
  };
  problem.batches = qs.size(0) - 1;
  problem.heads = q.size(1);
  problem.kv_heads = k.size(1);
  problem.queries = max_queries;
  problem.keys = max_keys;
  problem.query = rows(q);
  problem.key = rows(k);
  problem.value = rows(v);
  problem.out_head = out.stride(1);
  problem.out_row = out.stride(0);
  problem.logsumexp = logsumexp.mutable_data_ptr<float>();
  problem.logsumexp_head = logsumexp.stride(0);
  problem.query_starts = qs.const_data_ptr<int32_t>();
  problem.key_starts = ks.const_data_ptr<int32_t>();
  problem.bottom_right = true;
  problem.sinks = sink_numbers.defined() ? sink_numbers.const_data_ptr<float>() : nullptr;
  run_attention(problem);
  return {std::move(out), std::move(logsumexp)};
}

// ---- merge_attention_states
// ------------------------------------------------------------------------------------------

Pair merge_states(
    const at::Tensor& out_a, const at::Tensor& logsumexp_a, const at::Tensor& out_b, const at::Tensor& logsumexp_b) {
  std::vector<c10::SymInt> rows = out_a.sym_sizes().vec();
  TORCH_CHECK_VALUE(!rows.empty(), "merge_attention_states takes results of at least one dimension");
  rows.pop_back();
  TORCH_CHECK_VALUE(
      out_b.sym_sizes() == out_a.sym_sizes() && logsumexp_a.sym_sizes() == c10::SymIntArrayRef(rows) &&
          logsumexp_b.sym_sizes() == c10::SymIntArrayRef(rows),
      "merge_attention_states takes two results [..., dim] with log-sum-exps [...], got ", out_a.sym_sizes(), ", ",
      logsumexp_a.sym_sizes(), ", ", out_b.sym_sizes(), " and ", logsumexp_b.sym_sizes());
  constexpr double kDead = -std::numeric_limits<double>::infinity();
  const at::Tensor merged = at::logaddexp(logsumexp_a, logsumexp_b);
  const at::Tensor shift = merged.masked_fill(merged == kDead, 0.0);
  const at::Tensor weight_a = at::exp(logsumexp_a - shift).unsqueeze(-1);
  const at::Tensor weight_b = at::exp(logsumexp_b - shift).unsqueeze(-1);
  return {(out_a * weight_a + out_b * weight_b).to(out_a.scalar_type()), merged};
}

constexpr char kAttention[] = "musa::attention";
constexpr char kVarlen[] = "musa::attention_varlen";
using Attention = Differentiable<kAttention, attention_reference>;
using Varlen = Differentiable<kVarlen, varlen_reference>;

MUSA_NATIVE_KERNEL("musa::attention", attention, attention_cost);
MUSA_NATIVE_KERNEL("musa::attention_varlen", varlen, attention_varlen_cost);

TORCH_LIBRARY_FRAGMENT(musa, library) {
  library.def(
      "attention(Tensor query, Tensor key, Tensor value, *, float? scale=None, int left=-1, int right=-1, int "
      "global_keys=0, bool align_end=True, float softcap=0.0, Tensor? sinks=None, Tensor? mask=None, Tensor? "
      "block_mask=None, int[2] block_size=[64, 64]) -> (Tensor out, Tensor logsumexp)");
  library.def(
      "attention_varlen(Tensor query, Tensor key, Tensor value, Tensor query_starts, Tensor key_starts, int "
      "max_queries, int max_keys, *, float? scale=None, int left=-1, int right=-1, int global_keys=0, float "
      "softcap=0.0, Tensor? sinks=None) -> (Tensor out, Tensor logsumexp)");
  library.def(
      "merge_attention_states(Tensor out_a, Tensor logsumexp_a, Tensor out_b, Tensor logsumexp_b) -> (Tensor out, "
      "Tensor logsumexp)");
}
TORCH_LIBRARY_IMPL(musa, Meta, library) {
  library.impl("attention", TORCH_FN(attention_meta));
  library.impl("attention_varlen", TORCH_FN(varlen_meta));
}
TORCH_LIBRARY_IMPL(musa, CPU, library) {
  library.impl("attention", TORCH_FN(attention_reference));
  library.impl("attention_varlen", TORCH_FN(varlen_reference));
}
TORCH_LIBRARY_IMPL(musa, AutogradCPU, library) {
  library.impl("attention", TORCH_FN(Attention::call));
  library.impl("attention_varlen", TORCH_FN(Varlen::call));
}
TORCH_LIBRARY_IMPL(musa, AutogradPrivateUse1, library) {
  library.impl("attention", TORCH_FN(Attention::call));
  library.impl("attention_varlen", TORCH_FN(Varlen::call));
}
// A formula of ATen operators on every device.
TORCH_LIBRARY_IMPL(musa, CompositeImplicitAutograd, library) {
  library.impl("merge_attention_states", TORCH_FN(merge_states));
}

}  // namespace
}  // namespace musa
