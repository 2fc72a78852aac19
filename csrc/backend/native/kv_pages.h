// The paged KV cache on host tensors: checks and plain formulas.
#pragma once

#include <ATen/core/Tensor.h>

#include <tuple>

#include "mudnn/kv_pages.h"

namespace musa {

/// Shapes and dtypes of a pair of page tensors.
void check_pages(const char* op, const at::Tensor& key_pages, const at::Tensor& value_pages);
/// Of a table int32 [sequences, most pages] and lengths int32 [sequences].
void check_table(const char* op, const at::Tensor& page_table, const at::Tensor& lengths);
/// Lengths that the table holds, pages that exist; the tensors are contiguous and on the host.
void check_table_values(
    const char* op, const at::Tensor& page_table, const at::Tensor& lengths, const at::Tensor& key_pages);

mudnn::KvPages pages_of(const at::Tensor& pages);

/// The first `length` keys and values of a sequence whose pages are `page_ids` (int32): [length, kv heads, dim]. The
/// plain formula, on any device.
std::tuple<at::Tensor, at::Tensor> read_pages(
    const at::Tensor& key_pages, const at::Tensor& value_pages, const at::Tensor& page_ids, int64_t length);

}  // namespace musa
