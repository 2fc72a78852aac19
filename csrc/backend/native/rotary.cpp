// musa::rotary_embedding and rotary_embedding_.
#include "backend/native/rotary.h"

#include "mudnn/rotary.h"

#include <ATen/EmptyTensor.h>
#include <ATen/OpMathType.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/stack.h>
#include <torch/library.h>

#include "backend/native/differentiable.h"
#include "backend/native/kernels.h"
#include "backend/native/tensors.h"

namespace musa {
namespace {

using TwoTensors = std::tuple<at::Tensor, at::Tensor>;

/// Size of the rotated part of a head: `given`, or the last size of cos.
c10::SymInt rotary_size(
    const at::Tensor& q, const at::Tensor& k, const at::Tensor& cos, const at::Tensor& sin,
    std::optional<int64_t> given, int64_t unsqueeze_dim) {
  TORCH_CHECK(
      q.dim() >= 2 && q.dim() == k.dim() && q.sym_size(-1) == k.sym_size(-1) && q.scalar_type() == k.scalar_type(),
      "rotary_embedding takes q and k of one dtype, number of dimensions and head dim, got ", q.sym_sizes(), " ",
      q.scalar_type(), " and ", k.sym_sizes(), " ", k.scalar_type());
  TORCH_CHECK(
      cos.dim() >= 1 && cos.sym_sizes() == sin.sym_sizes() && cos.scalar_type() == sin.scalar_type(),
      "rotary_embedding takes cos and sin of one shape and dtype, got ", cos.sym_sizes(), " ", cos.scalar_type(),
      " and ", sin.sym_sizes(), " ", sin.scalar_type());
  TORCH_CHECK(
      unsqueeze_dim >= 0 && unsqueeze_dim < cos.dim() && cos.dim() < q.dim(),
      "rotary_embedding inserts a dimension of heads into cos at unsqueeze_dim, which must lie before its last one and "
      "give no more dimensions than q has; got unsqueeze_dim ",
      unsqueeze_dim, ", cos ", cos.sym_sizes(), " and q ", q.sym_sizes());
  const c10::SymInt angles = cos.sym_size(-1);
  const c10::SymInt size = given.has_value() ? c10::SymInt(*given) : angles;
  TORCH_CHECK(
      size % 2 == 0 && size <= q.sym_size(-1) && (angles == size || angles * 2 == size),
      "rotary_embedding rotates an even part of the head dim, and cos has that size or half of it; got rotary_dim ",
      size, ", head dim ", q.sym_size(-1), " and cos ", cos.sym_sizes());
  return size;
}

// ---- formulas: the reference, and what is differentiated

at::Tensor interleave(const at::Tensor& even, const at::Tensor& odd) { return at::stack({even, odd}, -1).flatten(-2); }

}  // namespace

at::Tensor spread_angles(const at::Tensor& angles, const c10::SymInt& size, bool interleaved) {
  if (angles.sym_size(-1) == size) {
    return angles;
  }
  return interleaved ? interleave(angles, angles) : at::cat({angles, angles}, -1);
}

at::Tensor rotated(
    const at::Tensor& x, const at::Tensor& cos, const at::Tensor& sin, const c10::SymInt& size, bool interleaved) {
  const at::ScalarType wide = at::toOpMathType(x.scalar_type());
  const at::Tensor part = x.narrow_symint(-1, 0, size).to(wide);
  at::Tensor partner;
  if (interleaved) {
    partner = interleave(-part.slice(-1, 1, std::nullopt, 2), part.slice(-1, 0, std::nullopt, 2));
  } else {
    const c10::SymInt half = size / 2;
    partner = at::cat({-part.narrow_symint(-1, half, half), part.narrow_symint(-1, 0, half)}, -1);
  }
  const at::Tensor result = (part * cos.to(wide) + partner * sin.to(wide)).to(x.scalar_type());
  return at::cat({result, x.narrow_symint(-1, size, x.sym_size(-1) - size)}, -1);
}

void check_positions(const char* op, const char* table, const at::Tensor& positions, int64_t rows) {
  const int64_t* values = positions.const_data_ptr<int64_t>();
  for (int64_t i = 0; i < positions.numel(); ++i) {
    TORCH_CHECK_INDEX(
        values[i] >= 0 && values[i] < rows, op, " was given position ", values[i], ", but ", table, " rows for 0 .. ",
        rows - 1);
  }
}

namespace {

TwoTensors rotary_embedding_formula(
    const at::Tensor& q, const at::Tensor& k, const at::Tensor& cos, const at::Tensor& sin, int64_t unsqueeze_dim,
    bool interleaved, std::optional<int64_t> rotary_dim) {
  const c10::SymInt size = rotary_size(q, k, cos, sin, rotary_dim, unsqueeze_dim);
  const at::Tensor c = spread_angles(cos, size, interleaved).unsqueeze(unsqueeze_dim);
  const at::Tensor s = spread_angles(sin, size, interleaved).unsqueeze(unsqueeze_dim);
  return {rotated(q, c, s, size, interleaved), rotated(k, c, s, size, interleaved)};
}

/// Shape of the heads [tokens, heads, head_dim] of a tensor of rotary_embedding_; checks it.
std::vector<int64_t> heads_shape(const at::Tensor& x, const at::Tensor& positions, int64_t head_dim, const char* name) {
  TORCH_CHECK(head_dim > 0, "rotary_embedding_ takes a positive head_dim, got ", head_dim);
  const int64_t tokens = positions.numel();
  TORCH_CHECK(
      x.dim() >= 2 && (tokens == 0 ? x.numel() == 0 : x.numel() % (tokens * head_dim) == 0), "rotary_embedding_ takes ",
      name, " of shape [tokens, heads * head_dim] or [tokens, heads, head_dim] for ", tokens,
      " positions and head_dim ", head_dim, ", got ", x.sizes());
  return {tokens, tokens == 0 ? 0 : x.numel() / (tokens * head_dim), head_dim};
}

void check_cache(const at::Tensor& positions, const at::Tensor& cache, int64_t head_dim) {
  TORCH_CHECK(
      cache.dim() == 2 && cache.size(1) % 2 == 0 && cache.size(1) <= head_dim,
      "rotary_embedding_ takes a cos_sin_cache of shape [positions, rotary_dim], the cosines of the pairs and then "
      "their sines, with rotary_dim up to head_dim ",
      head_dim, "; got ", cache.sizes());
  TORCH_CHECK(
      positions.scalar_type() == at::kLong || positions.scalar_type() == at::kInt,
      "rotary_embedding_ takes positions of int64 or int32, got ", positions.scalar_type());
}

void check_range(const at::Tensor& positions, const at::Tensor& cache) {
  check_positions("rotary_embedding_", "the cos_sin_cache has", positions, cache.size(0));
}

void rotary_embedding_in_place_formula(
    const at::Tensor& positions, const at::Tensor& q, const std::optional<at::Tensor>& k, int64_t head_dim,
    const at::Tensor& cache, bool interleaved) {
  check_cache(positions, cache, head_dim);
  const at::Tensor index = positions.flatten().to(at::kLong).contiguous();
  check_range(index, cache);
  const int64_t size = cache.size(1);
  const at::Tensor rows = cache.index_select(0, index);
  const at::Tensor cos = spread_angles(rows.narrow(-1, 0, size / 2), size, interleaved).unsqueeze(1);
  const at::Tensor sin = spread_angles(rows.narrow(-1, size / 2, size / 2), size, interleaved).unsqueeze(1);
  const auto apply = [&](const at::Tensor& x, const char* name) {
    const at::Tensor heads = x.reshape(heads_shape(x, positions, head_dim, name));
    x.copy_(rotated(heads, cos, sin, size, interleaved).reshape(x.sizes()));
  };
  apply(q, "q");
  if (k.has_value() && k->defined()) {
    apply(*k, "k");
  }
}

// ---- kernels

/// Strides of two dimensions of tokens, `heads` and the head dim in what an operand has; none where it has more.
struct TokenDims {
  int64_t sizes[2] = {1, 1};
  int dims[2] = {-1, -1};
};

std::optional<TokenDims> token_dims(const at::Tensor& q, int64_t head_axis) {
  TokenDims found;
  int next = 1;
  for (int64_t dim = q.dim() - 2; dim >= 0; --dim) {
    if (dim == head_axis) {
      continue;
    }
    if (next < 0) {
      return std::nullopt;
    }
    found.sizes[next] = q.size(dim);
    found.dims[next] = static_cast<int>(dim);
    --next;
  }
  return found;
}

int64_t stride_at(const at::Tensor& x, int dim) { return dim < 0 ? 0 : x.stride(dim); }

mudnn::RotaryHeads heads_of(const at::Tensor& in, const at::Tensor& out, const TokenDims& dims, int64_t head_axis) {
  return {
      .in = in.const_data_ptr(),
      .out = out.mutable_data_ptr(),
      .heads = in.size(head_axis),
      .in_batch = stride_at(in, dims.dims[0]),
      .in_token = stride_at(in, dims.dims[1]),
      .in_head = in.stride(head_axis),
      .out_batch = stride_at(out, dims.dims[0]),
      .out_token = stride_at(out, dims.dims[1]),
      .out_head = out.stride(head_axis)};
}

at::Tensor empty_as(const at::Tensor& x) {
  return x.is_non_overlapping_and_dense() ? at::detail::empty_strided_cpu(x.sizes(), x.strides(), x.scalar_type())
                                          : at::empty_like(x);
}

at::Tensor with_adjacent_elements(const at::Tensor& x) {
  return x.size(-1) <= 1 || x.stride(-1) == 1 ? x : x.contiguous();
}

/// The stride of cos along dimension `dim` of q, with which it is broadcast: 0 where it has one element. Checks sizes.
int64_t angle_stride(const at::Tensor& cos, const at::Tensor& q, int dim, int64_t unsqueeze_dim) {
  int64_t own = dim - (q.dim() - cos.dim() - 1);  // in cos with the dimension of heads
  if (dim < 0 || own < 0) {
    return 0;
  }
  own -= own > unsqueeze_dim ? 1 : 0;
  TORCH_CHECK(
      cos.size(own) == 1 || cos.size(own) == q.size(dim), "rotary_embedding can't broadcast cos ", cos.sizes(),
      " with a dimension of heads at ", unsqueeze_dim, " to q or k ", q.sizes());
  return cos.size(own) == 1 ? 0 : cos.stride(own);
}

TwoTensors rotary_embedding(
    const at::Tensor& q_given, const at::Tensor& k_given, const at::Tensor& cos_given, const at::Tensor& sin_given,
    int64_t unsqueeze_dim, bool interleaved, std::optional<int64_t> rotary_dim) {
  const int64_t size = rotary_size(q_given, k_given, cos_given, sin_given, rotary_dim, unsqueeze_dim).expect_int();
  const std::optional<mudnn::Dtype> dtype = mudnn_dtype(q_given.scalar_type());
  const std::optional<mudnn::Dtype> angle_dtype = mudnn_dtype(cos_given.scalar_type());
  const int64_t head_axis = unsqueeze_dim + q_given.dim() - cos_given.dim() - 1;
  const std::optional<TokenDims> dims = token_dims(q_given, head_axis);
  if (!dtype.has_value() || !angle_dtype.has_value() || !dims.has_value() || size == 0) {
    note_reference();
    return rotary_embedding_formula(q_given, k_given, cos_given, sin_given, unsqueeze_dim, interleaved, rotary_dim);
  }
  for (int64_t dim = 0; dim < q_given.dim(); ++dim) {
    TORCH_CHECK(
        dim == head_axis || q_given.size(dim) == k_given.size(dim),
        "rotary_embedding takes q and k that differ in their heads (dimension ", head_axis, ") only, got ",
        q_given.sizes(), " and ", k_given.sizes());
  }
  const at::Tensor q = with_adjacent_elements(q_given);
  const at::Tensor k = with_adjacent_elements(k_given);
  at::Tensor cos = with_adjacent_elements(cos_given);
  at::Tensor sin = with_adjacent_elements(sin_given);
  if (cos.strides() != sin.strides()) {
    cos = cos.contiguous();
    sin = sin.contiguous();
  }
  at::Tensor q_out = empty_as(q_given);
  at::Tensor k_out = empty_as(k_given);
  const bool adjacent = q_out.stride(-1) == 1 && k_out.stride(-1) == 1;
  at::Tensor q_work = adjacent ? q_out : at::detail::empty_cpu(q.sizes(), q.scalar_type());
  at::Tensor k_work = adjacent ? k_out : at::detail::empty_cpu(k.sizes(), k.scalar_type());
  mudnn::rotate(
      {.dtype = *dtype,
       .angle_dtype = *angle_dtype,
       .batches = dims->sizes[0],
       .tokens = dims->sizes[1],
       .head_dim = q.size(-1),
       .rotary_dim = size,
       .interleaved = interleaved,
       .whole = cos.size(-1) == size,
       .cos = cos.const_data_ptr(),
       .sin = sin.const_data_ptr(),
       .angle_batch = angle_stride(cos, q, dims->dims[0], unsqueeze_dim),
       .angle_token = angle_stride(cos, q, dims->dims[1], unsqueeze_dim),
       .positions = nullptr,
       .sides = {heads_of(q, q_work, *dims, head_axis), heads_of(k, k_work, *dims, head_axis)}},
      torch_threads());
  if (!adjacent) {
    q_out.copy_(q_work);
    k_out.copy_(k_work);
  }
  return {std::move(q_out), std::move(k_out)};
}

/// The heads of a tensor of rotary_embedding_ that are rotated where they lie; none when they aren't a view.
std::optional<mudnn::RotaryHeads> heads_in_place(const at::Tensor& x, const std::vector<int64_t>& shape) {
  const int64_t tokens = shape[0];
  const int64_t of_token = shape[1] * shape[2];
  // [..., heads * head_dim] or [..., heads, head_dim], the dimensions before being those of the positions.
  const bool flat = x.size(-1) == of_token;
  if (x.stride(-1) != 1 || (!flat && (x.dim() < 3 || x.size(-1) != shape[2] || x.size(-2) != shape[1]))) {
    return std::nullopt;
  }
  const int64_t dims = x.dim() - (flat ? 1 : 2);
  int64_t count = 1;
  int64_t stride = 0;
  for (int64_t dim = dims - 1; dim >= 0; --dim) {
    if (x.size(dim) == 1) {
      continue;
    }
    if (count == 1) {
      stride = x.stride(dim);
    } else if (x.stride(dim) != stride * count) {
      return std::nullopt;
    }
    count *= x.size(dim);
  }
  if (count != tokens) {
    return std::nullopt;
  }
  const int64_t head = flat ? shape[2] : x.stride(-2);
  void* data = x.mutable_data_ptr();
  return mudnn::RotaryHeads{data, data, shape[1], 0, stride, head, 0, stride, head};
}

void rotary_embedding_in_place(
    const at::Tensor& positions, const at::Tensor& q, const std::optional<at::Tensor>& k, int64_t head_dim,
    const at::Tensor& cache_given, bool interleaved) {
  check_cache(positions, cache_given, head_dim);
  const bool has_k = k.has_value() && k->defined();
  const std::optional<mudnn::Dtype> dtype = mudnn_dtype(q.scalar_type());
  const std::optional<mudnn::Dtype> angle_dtype = mudnn_dtype(cache_given.scalar_type());
  const auto q_heads = heads_in_place(q, heads_shape(q, positions, head_dim, "q"));
  std::optional<mudnn::RotaryHeads> k_heads = mudnn::RotaryHeads{};
  if (has_k) {
    k_heads = heads_in_place(*k, heads_shape(*k, positions, head_dim, "k"));
  }
  if (!dtype.has_value() || !angle_dtype.has_value() || !q_heads.has_value() || !k_heads.has_value() ||
      (has_k && k->scalar_type() != q.scalar_type()) || cache_given.size(1) == 0) {
    note_reference();
    rotary_embedding_in_place_formula(positions, q, k, head_dim, cache_given, interleaved);
    return;
  }
  const at::Tensor index = positions.to(at::kLong).contiguous();
  const at::Tensor cache = cache_given.contiguous();
  check_range(index, cache);
  const int64_t size = cache.size(1);
  mudnn::rotate(
      {.dtype = *dtype,
       .angle_dtype = *angle_dtype,
       .batches = 1,
       .tokens = index.numel(),
       .head_dim = head_dim,
       .rotary_dim = size,
       .interleaved = interleaved,
       .whole = false,
       .cos = cache.const_data_ptr(),
       .sin = static_cast<const char*>(cache.const_data_ptr()) + size / 2 * static_cast<int64_t>(cache.itemsize()),
       .angle_batch = 0,
       .angle_token = size,
       .positions = index.const_data_ptr<int64_t>(),
       .sides = {*q_heads, *k_heads}},
      torch_threads());
}

// ---- meta and autograd

TwoTensors rotary_embedding_meta(
    const at::Tensor& q, const at::Tensor& k, const at::Tensor& cos, const at::Tensor& sin, int64_t unsqueeze_dim, bool,
    std::optional<int64_t> rotary_dim) {
  (void)rotary_size(q, k, cos, sin, rotary_dim, unsqueeze_dim);
  return {at::empty_like(q), at::empty_like(k)};
}

void rotary_embedding_in_place_meta(
    const at::Tensor& positions, const at::Tensor&, const std::optional<at::Tensor>&, int64_t head_dim,
    const at::Tensor& cache, bool) {
  check_cache(positions, cache, head_dim);
}

void rotary_embedding_in_place_autograd(
    const at::Tensor& positions, const at::Tensor& q, const std::optional<at::Tensor>& k, int64_t head_dim,
    const at::Tensor& cache, bool interleaved) {
  TORCH_CHECK(
      !wants_derivative(q) && !wants_derivative(k) && !wants_derivative(cache),
      "rotary_embedding_ has no derivative; use rotary_embedding, or call it under torch.no_grad()");
  static const auto op = c10::Dispatcher::singleton()
                             .findSchemaOrThrow("musa::rotary_embedding_", "")
                             .typed<decltype(rotary_embedding_in_place)>();
  {
    const at::AutoDispatchBelowADInplaceOrView below;
    op.call(positions, q, k, head_dim, cache, interleaved);
  }
  for (const at::Tensor& written : {q, k.value_or(at::Tensor())}) {
    if (written.defined() && !written.is_inference()) {
      written.unsafeGetTensorImpl()->bump_version();
    }
  }
}

constexpr char kRotaryEmbedding[] = "musa::rotary_embedding";

MUSA_NATIVE_KERNEL(kRotaryEmbedding, rotary_embedding);
MUSA_NATIVE_KERNEL("musa::rotary_embedding_", rotary_embedding_in_place);

TORCH_LIBRARY_FRAGMENT(musa, library) {
  library.def(
      "rotary_embedding(Tensor q, Tensor k, Tensor cos, Tensor sin, int unsqueeze_dim=1, bool interleaved=False, int? "
      "rotary_dim=None) -> (Tensor, Tensor)");
  library.def(
      "rotary_embedding_(Tensor positions, Tensor(a!) q, Tensor(b!)? k, int head_dim, Tensor cos_sin_cache, bool "
      "interleaved=False) -> ()");
}

TORCH_LIBRARY_IMPL(musa, CPU, library) {
  library.impl("rotary_embedding", TORCH_FN(rotary_embedding_formula));
  library.impl("rotary_embedding_", TORCH_FN(rotary_embedding_in_place_formula));
}

TORCH_LIBRARY_IMPL(musa, Meta, library) {
  library.impl("rotary_embedding", TORCH_FN(rotary_embedding_meta));
  library.impl("rotary_embedding_", TORCH_FN(rotary_embedding_in_place_meta));
}

TORCH_LIBRARY_IMPL(musa, Autograd, library) {
  library.impl("rotary_embedding", TORCH_FN((Differentiable<kRotaryEmbedding, rotary_embedding_formula>::call)));
  library.impl("rotary_embedding_", TORCH_FN(rotary_embedding_in_place_autograd));
}

}  // namespace
}  // namespace musa
