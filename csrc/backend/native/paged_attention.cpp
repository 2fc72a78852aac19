// musa::paged_attention.
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <torch/library.h>

#include <algorithm>
#include <cmath>

#include "backend/native/attention_variants.h"
#include "backend/native/differentiable.h"
#include "backend/native/kernels.h"
#include "backend/native/kv_pages.h"
#include "backend/native/tensors.h"
#include "mudnn/attention.h"

namespace musa {
namespace {

using Pair = std::tuple<at::Tensor, at::Tensor>;
using Optional = std::optional<at::Tensor>;

bool given(const Optional& tensor) { return tensor.has_value() && tensor->defined(); }

Pair paged_attention_meta(
    const at::Tensor& query, const at::Tensor& key_pages, const at::Tensor& value_pages, const at::Tensor& page_table,
    const at::Tensor& query_starts, const at::Tensor& lengths, int64_t max_queries, int64_t max_keys,
    std::optional<double> /*scale*/, int64_t left, int64_t right, int64_t global_keys, double softcap,
    const Optional& sinks) {
  check_pages("paged_attention", key_pages, value_pages);
  check_table("paged_attention", page_table, lengths);
  TORCH_CHECK_VALUE(
      query.dim() == 3 && query.scalar_type() == key_pages.scalar_type() && key_pages.sym_size(1) > 0 &&
          query.sym_size(1) % key_pages.sym_size(1) == 0 && query.sym_size(2) == key_pages.sym_size(3),
      "paged_attention takes query [tokens, heads, dim] of the pages' dtype and dim with kv heads that divide heads, ",
      "got ", query.scalar_type(), " ", query.sym_sizes(), " for key pages ", key_pages.scalar_type(), " ",
      key_pages.sym_sizes());
  TORCH_CHECK_VALUE(
      query_starts.dim() == 1 && query_starts.scalar_type() == at::kInt &&
          query_starts.sym_size(0) == lengths.sym_size(0) + 1,
      "paged_attention takes query_starts int32 [sequences + 1], got ", query_starts.scalar_type(), " ",
      query_starts.sym_sizes(), " for ", lengths.sym_size(0), " sequences");
  TORCH_CHECK_VALUE(
      left >= -1 && right >= -1 && global_keys >= 0 && softcap >= 0 && max_queries >= 0 && max_keys >= 0,
      "paged_attention takes left and right of at least -1 (no bound), max_queries, max_keys, global_keys and softcap ",
      "of at least 0, got ", left, ", ", right, ", ", max_queries, ", ", max_keys, ", ", global_keys, " and ", softcap);
  TORCH_CHECK_VALUE(
      !given(sinks) || (sinks->dim() == 1 && sinks->sym_size(0) == query.sym_size(1)),
      "paged_attention takes one sink for each of ", query.sym_size(1), " query heads, got sinks of shape ",
      given(sinks) ? sinks->sym_sizes() : c10::SymIntArrayRef());
  const auto wide = query.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
  return {
      at::empty_symint({query.sym_size(0), query.sym_size(1), value_pages.sym_size(3)}, query.options()),
      at::empty_symint({query.sym_size(1), query.sym_size(0)}, query.options().dtype(wide))};
}

/// What would send the kernel out of its tensors.
void check_values(
    const at::Tensor& query, const at::Tensor& key_pages, const at::Tensor& table, const at::Tensor& query_starts,
    const at::Tensor& lengths, int64_t max_queries, int64_t max_keys) {
  check_table_values("paged_attention", table, lengths, key_pages);
  const int32_t* start = query_starts.const_data_ptr<int32_t>();
  const int64_t last = lengths.size(0);
  TORCH_CHECK_VALUE(
      start[0] == 0 && start[last] == query.size(0),
      "paged_attention takes query_starts from 0 to the number of tokens, ", query.size(0), ", got ", start[0], " to ",
      start[last]);
  for (int64_t i = 0; i < last; ++i) {
    const int64_t queries = start[i + 1] - start[i];
    const int64_t keys = lengths.const_data_ptr<int32_t>()[i];
    TORCH_CHECK_VALUE(
        queries >= 0 && queries <= max_queries && keys <= max_keys, "paged_attention: sequence ", i, " has ", queries,
        " queries and ", keys, " keys, accepted are 0 to ", max_queries, " and 0 to ", max_keys,
        " (max_queries, max_keys)");
  }
}

Pair paged_attention_reference(
    const at::Tensor& query, const at::Tensor& key_pages, const at::Tensor& value_pages, const at::Tensor& page_table,
    const at::Tensor& query_starts, const at::Tensor& lengths, int64_t max_queries, int64_t max_keys,
    std::optional<double> scale, int64_t left, int64_t right, int64_t global_keys, double softcap,
    const Optional& sinks) {
  using Attention = Pair(
      const at::Tensor&, const at::Tensor&, const at::Tensor&, std::optional<double>, int64_t, int64_t, int64_t, bool,
      double, const Optional&, const Optional&, const Optional&, c10::IntArrayRef);
  static const auto attention =
      c10::Dispatcher::singleton().findSchemaOrThrow("musa::attention", "").typed<Attention>();
  auto [out, logsumexp] = paged_attention_meta(
      query, key_pages, value_pages, page_table, query_starts, lengths, max_queries, max_keys, scale, left, right,
      global_keys, softcap, sinks);
  const at::Tensor table = page_table.contiguous();
  const at::Tensor starts = query_starts.contiguous();
  const at::Tensor counts = lengths.contiguous();
  check_values(query, key_pages, table, starts, counts, max_queries, max_keys);
  const int32_t* start = starts.const_data_ptr<int32_t>();
  for (int64_t i = 0; i < counts.size(0); ++i) {
    const int64_t length = counts.const_data_ptr<int32_t>()[i];
    const int64_t queries = start[i + 1] - start[i];
    const int64_t pages = (length + key_pages.size(2) - 1) / key_pages.size(2);
    const auto [key, value] = read_pages(key_pages, value_pages, table[i].narrow(0, 0, pages), length);
    const auto batch = [](const at::Tensor& rows) { return rows.transpose(0, 1).unsqueeze(0); };
    const auto [part, sums] = attention.call(
        batch(query.narrow(0, start[i], queries)), batch(key), batch(value), scale, left, right, global_keys, true,
        softcap, sinks, std::nullopt, std::nullopt, {64, 64});
    out.narrow(0, start[i], queries).copy_(part[0].transpose(0, 1));
    logsumexp.narrow(1, start[i], queries).copy_(sums[0]);
  }
  return {std::move(out), std::move(logsumexp)};
}

Pair paged_attention(
    const at::Tensor& query, const at::Tensor& key_pages, const at::Tensor& value_pages, const at::Tensor& page_table,
    const at::Tensor& query_starts, const at::Tensor& lengths, int64_t max_queries, int64_t max_keys,
    std::optional<double> scale, int64_t left, int64_t right, int64_t global_keys, double softcap,
    const Optional& sinks) {
  const auto dtype = mudnn_dtype(query.scalar_type());
  if (!dtype.has_value() || query.size(-1) == 0 || value_pages.size(-1) == 0) {
    note_reference();
    return paged_attention_reference(
        query, key_pages, value_pages, page_table, query_starts, lengths, max_queries, max_keys, scale, left, right,
        global_keys, softcap, sinks);
  }
  auto [out, logsumexp] = paged_attention_meta(
      query, key_pages, value_pages, page_table, query_starts, lengths, max_queries, max_keys, scale, left, right,
      global_keys, softcap, sinks);
  const at::Tensor table = page_table.contiguous();
  const at::Tensor starts = query_starts.contiguous();
  const at::Tensor counts = lengths.contiguous();
  check_values(query, key_pages, table, starts, counts, max_queries, max_keys);
  const at::Tensor q = query.stride(-1) == 1 ? query : query.contiguous();
  const at::Tensor sink_numbers = given(sinks) ? sinks->to(at::kFloat).contiguous() : at::Tensor();
  run_attention(
      {.dtype = *dtype,
       .batches = counts.size(0),
       .heads = q.size(1),
       .kv_heads = key_pages.size(1),
       .queries = max_queries,
       .keys = max_keys,
       .head_dim = q.size(2),
       .value_dim = value_pages.size(3),
       .query = {.data = q.const_data_ptr(), .batch = 0, .head = q.stride(1), .row = q.stride(0)},
       .key = {.data = key_pages.const_data_ptr(), .batch = 0, .head = 0, .row = 0},
       .value = {.data = value_pages.const_data_ptr(), .batch = 0, .head = 0, .row = 0},
       .out = out.mutable_data_ptr(),
       .out_batch = 0,
       .out_head = out.stride(1),
       .out_row = out.stride(0),
       .logsumexp = logsumexp.mutable_data_ptr<float>(),
       .logsumexp_head = logsumexp.stride(0),
       .query_starts = starts.const_data_ptr<int32_t>(),
       .scale = static_cast<float>(scale.value_or(1.0 / std::sqrt(static_cast<double>(q.size(2))))),
       .softcap = static_cast<float>(softcap),
       .bottom_right = true,
       .left = left,
       .right = right,
       .global_keys = global_keys,
       .sinks = sink_numbers.defined() ? sink_numbers.const_data_ptr<float>() : nullptr,
       .mask = {},
       .blocks = {},
       .pages = {
           .table = table.const_data_ptr<int32_t>(),
           .width = table.size(1),
           .lengths = counts.const_data_ptr<int32_t>(),
           .key = pages_of(key_pages),
           .value = pages_of(value_pages)}});
  return {std::move(out), std::move(logsumexp)};
}

/// Every sequence counts as one of max_keys keys, less what the window hides: lengths are not known during a capture.
OpCost paged_attention_cost(const c10::IValue* arguments) {
  const at::Tensor& query = arguments[0].toTensor();
  const at::Tensor& key_pages = arguments[1].toTensor();
  const at::Tensor& value_pages = arguments[2].toTensor();
  if (query.dim() != 3 || key_pages.dim() != 4 || value_pages.dim() != 4) {
    return {};  // refused
  }
  const int64_t left = arguments[9].toInt();
  int64_t keys = arguments[7].toInt();
  if (left >= 0) {
    keys = std::min(keys, left + arguments[6].toInt() + arguments[11].toInt());
  }
  const auto width = static_cast<double>(key_pages.size(3) + value_pages.size(3));
  const auto rows = static_cast<double>(query.size(0) * query.size(1));
  const auto read = static_cast<double>(arguments[5].toTensor().numel() * keys * key_pages.size(1));
  return {
      .flops = 2 * rows * static_cast<double>(keys) * width,
      .bytes = (rows + read) * width * static_cast<double>(query.itemsize())};
}

MUSA_NATIVE_KERNEL("musa::paged_attention", paged_attention, paged_attention_cost);

TORCH_LIBRARY_FRAGMENT(musa, library) {
  library.def(
      "paged_attention(Tensor query, Tensor key_pages, Tensor value_pages, Tensor page_table, Tensor query_starts, "
      "Tensor lengths, int max_queries, int max_keys, *, float? scale=None, int left=-1, int right=-1, int "
      "global_keys=0, float softcap=0.0, Tensor? sinks=None) -> (Tensor out, Tensor logsumexp)");
}
TORCH_LIBRARY_IMPL(musa, Meta, library) { library.impl("paged_attention", TORCH_FN(paged_attention_meta)); }
TORCH_LIBRARY_IMPL(musa, CPU, library) { library.impl("paged_attention", TORCH_FN(paged_attention_reference)); }

constexpr char kPagedAttention[] = "musa::paged_attention";

TORCH_LIBRARY_IMPL(musa, AutogradCPU, library) {
  library.impl("paged_attention", TORCH_FN((NotDifferentiable<kPagedAttention, paged_attention_reference>::call)));
}
TORCH_LIBRARY_IMPL(musa, AutogradPrivateUse1, library) {
  library.impl("paged_attention", TORCH_FN((NotDifferentiable<kPagedAttention, paged_attention_reference>::call)));
}

}  // namespace
}  // namespace musa
