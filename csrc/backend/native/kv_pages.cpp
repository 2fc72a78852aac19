// musa::kv_append, musa::kv_copy and musa::kv_gather.
#include "backend/native/kv_pages.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <torch/library.h>

#include <cstring>
#include <unordered_set>

#include "backend/native/differentiable.h"
#include "backend/native/kernels.h"
#include "backend/native/rows.h"
#include "backend/native/tensors.h"

namespace musa {

using TwoTensors = std::tuple<at::Tensor, at::Tensor>;

void check_pages(const char* op, const at::Tensor& key_pages, const at::Tensor& value_pages) {
  TORCH_CHECK_VALUE(
      key_pages.dim() == 4 && value_pages.dim() == 4 && key_pages.scalar_type() == value_pages.scalar_type() &&
          key_pages.sym_size(0) == value_pages.sym_size(0) && key_pages.sym_size(1) == value_pages.sym_size(1) &&
          key_pages.sym_size(2) == value_pages.sym_size(2) && key_pages.sym_size(2) > 0 &&
          key_pages.sym_size(2) % mudnn::kPageBlock == 0,
      op, " takes key_pages and value_pages [pages, kv heads, page size, dim] of one dtype with a page size that is a ",
      "multiple of ", mudnn::kPageBlock, ", got ", key_pages.scalar_type(), " ", key_pages.sym_sizes(), " and ",
      value_pages.scalar_type(), " ", value_pages.sym_sizes());
  TORCH_CHECK_VALUE(
      key_pages.is_floating_point() && key_pages.is_contiguous() && value_pages.is_contiguous(), op,
      " takes contiguous pages of a floating point dtype, got ", key_pages.scalar_type(), " with strides ",
      key_pages.sym_strides(), " and ", value_pages.sym_strides());
  TORCH_CHECK_VALUE(
      key_pages.itemsize() != 2 || (key_pages.sym_size(3) % 2 == 0 && value_pages.sym_size(3) % 2 == 0), op,
      " takes pages of an even dim for dtypes of 16 bits, got ", key_pages.sym_size(3), " and ",
      value_pages.sym_size(3));
}

void check_table(const char* op, const at::Tensor& page_table, const at::Tensor& lengths) {
  TORCH_CHECK_VALUE(
      page_table.dim() == 2 && lengths.dim() == 1 && lengths.sym_size(0) == page_table.sym_size(0) &&
          page_table.scalar_type() == at::kInt && lengths.scalar_type() == at::kInt,
      op, " takes page_table int32 [sequences, most pages] and lengths int32 [sequences], got ",
      page_table.scalar_type(), " ", page_table.sym_sizes(), " and ", lengths.scalar_type(), " ", lengths.sym_sizes());
}

void check_table_values(
    const char* op, const at::Tensor& page_table, const at::Tensor& lengths, const at::Tensor& key_pages) {
  const int64_t width = page_table.size(1);
  const int64_t page_size = key_pages.size(2);
  const int32_t* table = page_table.const_data_ptr<int32_t>();
  for (int64_t i = 0; i < lengths.size(0); ++i) {
    const int64_t length = lengths.const_data_ptr<int32_t>()[i];
    TORCH_CHECK_INDEX(
        length >= 0 && length <= width * page_size, op, ": sequence ", i, " has length ", length,
        ", but the page table holds 0 .. ", width * page_size, " tokens (", width, " pages of ", page_size, ")");
    for (int64_t j = 0; j * page_size < length; ++j) {
      const int64_t page = table[i * width + j];
      TORCH_CHECK_INDEX(
          page >= 0 && page < key_pages.size(0), op, ": entry ", j, " of sequence ", i, " in the page table is page ",
          page, ", but there are pages 0 .. ", key_pages.size(0) - 1);
    }
  }
}

mudnn::KvPages pages_of(const at::Tensor& pages) {
  return {.kv_heads = pages.size(1), .page_size = pages.size(2), .dim = pages.size(3)};
}

namespace {

// A view of pages by what identifies a number: keys [page, block, token, head, pair, 2], values [page, block, pair of
// tokens, 2, head, element]; for wider numbers both [page, block, token, head, element].
at::Tensor keys_by_token(const at::Tensor& pages) {
  const int64_t blocks = pages.size(2) / mudnn::kPageBlock;
  if (pages.itemsize() == 2) {
    return pages.view({pages.size(0), pages.size(1), blocks, pages.size(3) / 2, mudnn::kPageBlock, 2})
        .permute({0, 2, 4, 1, 3, 5});
  }
  return pages.view({pages.size(0), pages.size(1), blocks, mudnn::kPageBlock, pages.size(3)}).permute({0, 2, 3, 1, 4});
}
at::Tensor values_by_token(const at::Tensor& pages) {
  const int64_t blocks = pages.size(2) / mudnn::kPageBlock;
  if (pages.itemsize() == 2) {
    return pages.view({pages.size(0), pages.size(1), blocks, mudnn::kPageBlock / 2, pages.size(3), 2})
        .permute({0, 2, 3, 5, 1, 4});
  }
  return keys_by_token(pages);
}

}  // namespace

TwoTensors read_pages(
    const at::Tensor& key_pages, const at::Tensor& value_pages, const at::Tensor& page_ids, int64_t length) {
  const auto rows = [&](const at::Tensor& pages, at::Tensor (*by_token)(const at::Tensor&)) {
    return by_token(pages.index_select(0, page_ids)).reshape({-1, pages.size(1), pages.size(3)}).narrow(0, 0, length);
  };
  return {rows(key_pages, keys_by_token), rows(value_pages, values_by_token)};
}

namespace {

// ---- kv_append

void check_append(
    const at::Tensor& key_pages, const at::Tensor& value_pages, const at::Tensor& key, const at::Tensor& value,
    const at::Tensor& slots) {
  check_pages("kv_append", key_pages, value_pages);
  const auto fits = [&](const at::Tensor& x, const at::Tensor& pages) {
    return x.dim() == 3 && x.sym_size(0) == slots.sym_size(0) && x.sym_size(1) == pages.sym_size(1) &&
        x.sym_size(2) == pages.sym_size(3) && x.scalar_type() == pages.scalar_type();
  };
  TORCH_CHECK_VALUE(
      slots.dim() == 1 && slots.scalar_type() == at::kLong && fits(key, key_pages) && fits(value, value_pages),
      "kv_append takes key and value [tokens, kv heads, dim] as the pages have it and slots int64 [tokens], got ",
      key.scalar_type(), " ", key.sym_sizes(), ", ", value.scalar_type(), " ", value.sym_sizes(), " and ",
      slots.scalar_type(), " ", slots.sym_sizes(), " for pages ", key_pages.scalar_type(), " ", key_pages.sym_sizes(),
      " and ", value_pages.sym_sizes());
}

void check_slots(const at::Tensor& slots, const at::Tensor& key_pages) {
  const int64_t end = key_pages.size(0) * key_pages.size(2);
  const int64_t* values = slots.const_data_ptr<int64_t>();
  for (int64_t i = 0; i < slots.size(0); ++i) {
    TORCH_CHECK_INDEX(
        values[i] < end, "kv_append was given slot ", values[i], " for token ", i, ", but ", key_pages.size(0),
        " pages of ", key_pages.size(2), " have slots 0 .. ", end - 1, "; a negative slot leaves a token out");
  }
}

void append_reference(
    const at::Tensor& key_pages, const at::Tensor& value_pages, const at::Tensor& key, const at::Tensor& value,
    const at::Tensor& slots) {
  check_append(key_pages, value_pages, key, value, slots);
  check_slots(slots.contiguous(), key_pages);
  const at::Tensor kept = (slots >= 0).nonzero().squeeze(1);
  const at::Tensor slot = slots.index_select(0, kept);
  const int64_t page_size = key_pages.size(2);
  const at::Tensor page = slot.div(page_size, "floor");
  const at::Tensor position = slot.remainder(page_size);
  const at::Tensor block = position.div(mudnn::kPageBlock, "floor");
  const at::Tensor token = position.remainder(mudnn::kPageBlock);
  const at::Tensor k = key.index_select(0, kept);
  const at::Tensor v = value.index_select(0, kept);
  at::Tensor keys = keys_by_token(key_pages);
  at::Tensor values = values_by_token(value_pages);
  if (key_pages.itemsize() == 2) {
    keys.index_put_({page, block, token}, k.reshape({k.size(0), k.size(1), k.size(2) / 2, 2}));
    values.index_put_({page, block, token.div(2, "floor"), token.remainder(2)}, v);
  } else {
    keys.index_put_({page, block, token}, k);
    values.index_put_({page, block, token}, v);
  }
}

mudnn::KvRows rows_of(const at::Tensor& x) {
  return {.data = const_cast<void*>(x.const_data_ptr()), .token = x.stride(0), .head = x.stride(1)};
}

at::Tensor with_contiguous_rows(const at::Tensor& x) { return x.stride(-1) == 1 ? x : x.contiguous(); }

void append(
    const at::Tensor& key_pages, const at::Tensor& value_pages, const at::Tensor& key, const at::Tensor& value,
    const at::Tensor& slots) {
  const auto dtype = mudnn_dtype(key_pages.scalar_type());
  if (!dtype.has_value()) {
    note_reference();
    return append_reference(key_pages, value_pages, key, value, slots);
  }
  check_append(key_pages, value_pages, key, value, slots);
  const at::Tensor index = slots.contiguous();
  check_slots(index, key_pages);
  const at::Tensor k = with_contiguous_rows(key);
  const at::Tensor v = with_contiguous_rows(value);
  mudnn::append_to_pages(
      {.dtype = *dtype,
       .key = pages_of(key_pages),
       .value = pages_of(value_pages),
       .key_pages = key_pages.mutable_data_ptr(),
       .value_pages = value_pages.mutable_data_ptr(),
       .key_rows = rows_of(k),
       .value_rows = rows_of(v),
       .slots = index.const_data_ptr<int64_t>(),
       .tokens = index.size(0)},
      torch_threads());
}

double bytes_of(const at::Tensor& x) { return static_cast<double>(x.numel()) * static_cast<double>(x.itemsize()); }

/// Reads what is appended and writes as much.
OpCost append_cost(const c10::IValue* arguments) {
  return {.bytes = 2 * (bytes_of(arguments[2].toTensor()) + bytes_of(arguments[3].toTensor()))};
}

// ---- kv_copy

void check_copy(
    const at::Tensor& key_pages, const at::Tensor& value_pages, const at::Tensor& source, const at::Tensor& target) {
  check_pages("kv_copy", key_pages, value_pages);
  TORCH_CHECK_VALUE(
      source.dim() == 1 && source.sym_sizes() == target.sym_sizes() && source.scalar_type() == at::kLong &&
          target.scalar_type() == at::kLong,
      "kv_copy takes source and target int64 [n], got ", source.scalar_type(), " ", source.sym_sizes(), " and ",
      target.scalar_type(), " ", target.sym_sizes());
}

/// Ids of pages, each target once. Returns whether a target is also read.
bool check_copy_values(const at::Tensor& source, const at::Tensor& target, const at::Tensor& key_pages) {
  const int64_t* from = source.const_data_ptr<int64_t>();
  const int64_t* to = target.const_data_ptr<int64_t>();
  std::unordered_set<int64_t> written;
  for (int64_t i = 0; i < source.size(0); ++i) {
    for (const int64_t page : {from[i], to[i]}) {
      TORCH_CHECK_INDEX(
          page >= 0 && page < key_pages.size(0), "kv_copy was given page ", page, ", but there are pages 0 .. ",
          key_pages.size(0) - 1);
    }
    TORCH_CHECK_VALUE(written.insert(to[i]).second, "kv_copy takes each target once, got page ", to[i], " again");
  }
  bool overlaps = false;
  for (int64_t i = 0; i < source.size(0); ++i) {
    overlaps |= written.contains(from[i]);
  }
  return overlaps;
}

void copy_reference(
    const at::Tensor& key_pages, const at::Tensor& value_pages, const at::Tensor& source, const at::Tensor& target) {
  check_copy(key_pages, value_pages, source, target);
  (void)check_copy_values(source.contiguous(), target.contiguous(), key_pages);
  for (at::Tensor pages : {key_pages, value_pages}) {
    pages.index_copy_(0, target, pages.index_select(0, source));
  }
}

void copy(
    const at::Tensor& key_pages, const at::Tensor& value_pages, const at::Tensor& source, const at::Tensor& target) {
  check_copy(key_pages, value_pages, source, target);
  const at::Tensor from = source.contiguous();
  const at::Tensor to = target.contiguous();
  if (check_copy_values(from, to, key_pages)) {
    note_reference();
    return copy_reference(key_pages, value_pages, source, target);
  }
  const int64_t* sources = from.const_data_ptr<int64_t>();
  const int64_t* targets = to.const_data_ptr<int64_t>();
  for (const at::Tensor& pages : {key_pages, value_pages}) {
    char* data = static_cast<char*>(pages.mutable_data_ptr());
    const int64_t bytes = pages.size(1) * pages.size(2) * pages.size(3) * static_cast<int64_t>(pages.itemsize());
    torch_threads().for_each(from.size(0), 8, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        std::memcpy(data + targets[i] * bytes, data + sources[i] * bytes, static_cast<size_t>(bytes));
      }
    });
  }
}

OpCost copy_cost(const c10::IValue* arguments) {
  double bytes = 0;
  for (const int i : {0, 1}) {
    const at::Tensor& pages = arguments[i].toTensor();
    if (pages.dim() != 4) {
      return {};  // refused
    }
    bytes += 2.0 * static_cast<double>(arguments[2].toTensor().numel()) *
        static_cast<double>(pages.size(1) * pages.size(2) * pages.size(3)) * static_cast<double>(pages.itemsize());
  }
  return {.bytes = bytes};
}

// ---- kv_gather

void check_total(const at::Tensor& lengths, int64_t total) {
  int64_t sum = 0;
  for (int64_t i = 0; i < lengths.size(0); ++i) {
    sum += lengths.const_data_ptr<int32_t>()[i];
  }
  TORCH_CHECK_VALUE(sum == total, "kv_gather takes the sum of lengths as total, ", sum, ", got ", total);
}

TwoTensors gather_meta(
    const at::Tensor& key_pages, const at::Tensor& value_pages, const at::Tensor& page_table, const at::Tensor& lengths,
    c10::SymInt total) {
  check_pages("kv_gather", key_pages, value_pages);
  check_table("kv_gather", page_table, lengths);
  return {
      at::empty_symint({total, key_pages.sym_size(1), key_pages.sym_size(3)}, key_pages.options()),
      at::empty_symint({total, value_pages.sym_size(1), value_pages.sym_size(3)}, value_pages.options())};
}

TwoTensors gather_reference(
    const at::Tensor& key_pages, const at::Tensor& value_pages, const at::Tensor& page_table, const at::Tensor& lengths,
    int64_t total) {
  check_pages("kv_gather", key_pages, value_pages);
  check_table("kv_gather", page_table, lengths);
  const at::Tensor table = page_table.contiguous();
  const at::Tensor counts = lengths.contiguous();
  check_table_values("kv_gather", table, counts, key_pages);
  check_total(counts, total);
  std::vector<at::Tensor> keys{at::empty({0, key_pages.size(1), key_pages.size(3)}, key_pages.options())};
  std::vector<at::Tensor> values{at::empty({0, value_pages.size(1), value_pages.size(3)}, value_pages.options())};
  for (int64_t i = 0; i < counts.size(0); ++i) {
    const int64_t length = counts.const_data_ptr<int32_t>()[i];
    const int64_t pages = (length + key_pages.size(2) - 1) / key_pages.size(2);
    auto [key, value] = read_pages(key_pages, value_pages, table[i].narrow(0, 0, pages), length);
    keys.push_back(std::move(key));
    values.push_back(std::move(value));
  }
  return {at::cat(keys, 0), at::cat(values, 0)};
}

TwoTensors gather(
    const at::Tensor& key_pages, const at::Tensor& value_pages, const at::Tensor& page_table, const at::Tensor& lengths,
    int64_t total) {
  const auto dtype = mudnn_dtype(key_pages.scalar_type());
  if (!dtype.has_value()) {
    note_reference();
    return gather_reference(key_pages, value_pages, page_table, lengths, total);
  }
  check_pages("kv_gather", key_pages, value_pages);
  check_table("kv_gather", page_table, lengths);
  const at::Tensor table = page_table.contiguous();
  const at::Tensor counts = lengths.contiguous();
  check_table_values("kv_gather", table, counts, key_pages);
  check_total(counts, total);
  c10::SmallVector<int64_t, 16> starts{0};
  int64_t most = 0;
  for (int64_t i = 0; i < counts.size(0); ++i) {
    const int64_t length = counts.const_data_ptr<int32_t>()[i];
    starts.push_back(starts.back() + length);
    most = std::max(most, length);
  }
  at::Tensor key = fresh({total, key_pages.size(1), key_pages.size(3)}, key_pages.scalar_type());
  at::Tensor value = fresh({total, value_pages.size(1), value_pages.size(3)}, value_pages.scalar_type());
  mudnn::gather_from_pages(
      {.dtype = *dtype,
       .key = pages_of(key_pages),
       .value = pages_of(value_pages),
       .key_pages = key_pages.const_data_ptr(),
       .value_pages = value_pages.const_data_ptr(),
       .key_rows = rows_of(key),
       .value_rows = rows_of(value),
       .table = table.const_data_ptr<int32_t>(),
       .table_width = table.size(1),
       .starts = starts.data(),
       .sequences = counts.size(0),
       .most = most},
      torch_threads());
  return {std::move(key), std::move(value)};
}

OpCost gather_cost(const c10::IValue* arguments) {
  double bytes = 0;
  for (const int i : {0, 1}) {
    const at::Tensor& pages = arguments[i].toTensor();
    if (pages.dim() != 4) {
      return {};  // refused
    }
    bytes += 2.0 * static_cast<double>(arguments[4].toInt()) * static_cast<double>(pages.size(1) * pages.size(3)) *
        static_cast<double>(pages.itemsize());
  }
  return {.bytes = bytes};
}

MUSA_NATIVE_KERNEL("musa::kv_append", append, append_cost);
MUSA_NATIVE_KERNEL("musa::kv_copy", copy, copy_cost);
MUSA_NATIVE_KERNEL("musa::kv_gather", gather, gather_cost);

TORCH_LIBRARY_FRAGMENT(musa, library) {
  library.def("kv_append(Tensor(a!) key_pages, Tensor(b!) value_pages, Tensor key, Tensor value, Tensor slots) -> ()");
  library.def("kv_copy(Tensor(a!) key_pages, Tensor(b!) value_pages, Tensor source, Tensor target) -> ()");
  library.def(
      "kv_gather(Tensor key_pages, Tensor value_pages, Tensor page_table, Tensor lengths, SymInt total) -> (Tensor "
      "key, Tensor value)");
}
TORCH_LIBRARY_IMPL(musa, Meta, library) {
  library.impl("kv_append", TORCH_FN(check_append));
  library.impl("kv_copy", TORCH_FN(check_copy));
  library.impl("kv_gather", TORCH_FN(gather_meta));
}
TORCH_LIBRARY_IMPL(musa, CPU, library) {
  library.impl("kv_append", TORCH_FN(append_reference));
  library.impl("kv_copy", TORCH_FN(copy_reference));
  library.impl("kv_gather", TORCH_FN(gather_reference));
}

constexpr char kKvAppend[] = "musa::kv_append";
constexpr char kKvCopy[] = "musa::kv_copy";
constexpr char kKvGather[] = "musa::kv_gather";

TORCH_LIBRARY_IMPL(musa, AutogradCPU, library) {
  library.impl("kv_append", TORCH_FN((NotDifferentiable<kKvAppend, append_reference>::call)));
  library.impl("kv_copy", TORCH_FN((NotDifferentiable<kKvCopy, copy_reference>::call)));
  library.impl("kv_gather", TORCH_FN((NotDifferentiable<kKvGather, gather_meta>::call)));
}
TORCH_LIBRARY_IMPL(musa, AutogradPrivateUse1, library) {
  library.impl("kv_append", TORCH_FN((NotDifferentiable<kKvAppend, append_reference>::call)));
  library.impl("kv_copy", TORCH_FN((NotDifferentiable<kKvCopy, copy_reference>::call)));
  library.impl("kv_gather", TORCH_FN((NotDifferentiable<kKvGather, gather_meta>::call)));
}

}  // namespace
}  // namespace musa
