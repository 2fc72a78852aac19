// musa::qkv_norm_rope: from the product of the three projections to what attention takes.
#include "mudnn/qkv.h"

#include <ATen/ops/empty.h>
#include <torch/library.h>

#include <algorithm>

#include "backend/native/differentiable.h"
#include "backend/native/kernels.h"
#include "backend/native/norm.h"
#include "backend/native/rotary.h"
#include "backend/native/rows.h"
#include "backend/native/tensors.h"
#include "backend/ops/devices.h"

namespace musa {
namespace {

using OptionalTensor = std::optional<at::Tensor>;
using ThreeTensors = std::tuple<at::Tensor, at::Tensor, at::Tensor>;

struct Sizes {
  c10::SymInt tokens;
  c10::SymInt head_dim;
  c10::SymInt rotary_dim;
};

Sizes check_qkv(
    const at::Tensor& qkv, int64_t heads, int64_t kv_heads, const at::Tensor& cos, const at::Tensor& sin,
    const OptionalTensor& positions, const at::Tensor& q_weight, const at::Tensor& k_weight,
    std::optional<int64_t> rotary_dim) {
  TORCH_CHECK_VALUE(
      heads >= 1 && kv_heads >= 1, "qkv_norm_rope takes at least one query head and one key head, got heads=", heads,
      " and kv_heads=", kv_heads);
  const int64_t all = heads + 2 * kv_heads;
  TORCH_CHECK(
      qkv.dim() >= 1 && qkv.is_floating_point() && qkv.sym_size(-1) % all == 0 && qkv.sym_size(-1) > 0,
      "qkv_norm_rope takes a floating point qkv of shape [..., (heads + 2 * kv_heads) * head_dim], here [..., ", all,
      " * head_dim], got ", qkv.scalar_type(), " of shape ", qkv.sym_sizes());
  const c10::SymInt dim = qkv.sym_size(-1) / all;
  const c10::SymInt tokens = qkv.sym_numel() / qkv.sym_size(-1);
  for (const at::Tensor& weight : {q_weight, k_weight}) {
    TORCH_CHECK(
        !weight.defined() || (weight.dim() == 1 && weight.sym_size(0) == dim), "qkv_norm_rope takes weights of shape [",
        dim, "], the head dim, got ", weight.sym_sizes());
  }
  TORCH_CHECK(
      cos.dim() == 2 && cos.sym_sizes() == sin.sym_sizes() && cos.scalar_type() == sin.scalar_type(),
      "qkv_norm_rope takes cos and sin of one dtype and one shape [rows, rotary_dim or half of it], got ",
      cos.sym_sizes(), " ", cos.scalar_type(), " and ", sin.sym_sizes(), " ", sin.scalar_type());
  const c10::SymInt angles = cos.sym_size(-1);
  const c10::SymInt size = rotary_dim.has_value() ? c10::SymInt(*rotary_dim) : angles;
  TORCH_CHECK(
      size >= 0 && size % 2 == 0 && size <= dim && (angles == size || angles * 2 == size),
      "qkv_norm_rope rotates an even part of the head dim, and cos has that many columns or half as many; got "
      "rotary_dim ",
      size, ", head dim ", dim, " and cos ", cos.sym_sizes());
  if (positions.has_value()) {
    TORCH_CHECK(
        (positions->scalar_type() == at::kLong || positions->scalar_type() == at::kInt) &&
            positions->sym_numel() == tokens,
        "qkv_norm_rope takes one position of int64 or int32 for each of ", tokens, " tokens, got ",
        positions->scalar_type(), " of shape ", positions->sym_sizes());
  } else {
    TORCH_CHECK(
        cos.sym_size(0) == tokens, "qkv_norm_rope without positions takes a row of cos and sin for each of ", tokens,
        " tokens, got ", cos.sym_sizes());
  }
  return {tokens, dim, size};
}

/// Sizes of `heads` heads of each token of qkv.
std::vector<c10::SymInt> heads_of(const at::Tensor& qkv, int64_t heads, const c10::SymInt& head_dim) {
  std::vector<c10::SymInt> sizes = qkv.sym_sizes().vec();
  sizes.back() = heads;
  sizes.push_back(head_dim);
  return sizes;
}

// ---- the formula: the reference, and what is differentiated (on any device, also where there are no values)

ThreeTensors qkv_norm_rope_formula(
    const at::Tensor& qkv, int64_t heads, int64_t kv_heads, const at::Tensor& cos, const at::Tensor& sin,
    const OptionalTensor& positions, const OptionalTensor& q_weight, const OptionalTensor& k_weight, double eps,
    double weight_offset, bool interleaved, std::optional<int64_t> rotary_dim) {
  const Sizes sizes =
      check_qkv(qkv, heads, kv_heads, cos, sin, positions, or_undefined(q_weight), or_undefined(k_weight), rotary_dim);
  const auto angles_of = [&](const at::Tensor& table) {
    at::Tensor rows = table;
    if (positions.has_value()) {
      rows = table.index_select(0, positions->flatten());
    }
    return spread_angles(rows, sizes.rotary_dim, interleaved).unsqueeze(1);
  };
  const at::Tensor c = angles_of(cos);
  const at::Tensor s = angles_of(sin);
  const at::Tensor all = qkv.reshape_symint({sizes.tokens, heads + 2 * kv_heads, sizes.head_dim});
  const auto side = [&](int64_t first, int64_t count, const OptionalTensor& weight) {
    at::Tensor x = all.narrow(1, first, count);
    if (weight.has_value()) {
      x = rms_norm_in_op_math(x, *weight, eps, weight_offset);
    }
    return rotated(x, c, s, sizes.rotary_dim, interleaved)
        .to(qkv.scalar_type())
        .reshape_symint(heads_of(qkv, count, sizes.head_dim));
  };
  return {
      side(0, heads, q_weight), side(heads, kv_heads, k_weight),
      all.narrow(1, heads + kv_heads, kv_heads).contiguous().reshape_symint(heads_of(qkv, kv_heads, sizes.head_dim))};
}

/// The positions as the kernel takes them, checked; undefined where there are none.
at::Tensor checked_positions(const OptionalTensor& positions, const at::Tensor& cos) {
  if (!positions.has_value()) {
    return {};
  }
  at::Tensor index = positions->to(at::kLong).contiguous();
  check_positions("qkv_norm_rope", "cos and sin have", index, cos.size(0));
  return index;
}

ThreeTensors qkv_norm_rope_reference(
    const at::Tensor& qkv, int64_t heads, int64_t kv_heads, const at::Tensor& cos, const at::Tensor& sin,
    const OptionalTensor& positions, const OptionalTensor& q_weight, const OptionalTensor& k_weight, double eps,
    double weight_offset, bool interleaved, std::optional<int64_t> rotary_dim) {
  check_qkv(qkv, heads, kv_heads, cos, sin, positions, or_undefined(q_weight), or_undefined(k_weight), rotary_dim);
  (void)checked_positions(positions, cos);
  return qkv_norm_rope_formula(
      qkv, heads, kv_heads, cos, sin, positions, q_weight, k_weight, eps, weight_offset, interleaved, rotary_dim);
}

// ---- the kernel

at::Tensor with_adjacent_columns(const at::Tensor& table) {
  return table.size(1) <= 1 || table.stride(1) == 1 ? table : table.contiguous();
}

const void* data_or_null(const at::Tensor& tensor) { return tensor.defined() ? tensor.const_data_ptr() : nullptr; }

ThreeTensors qkv_norm_rope(
    const at::Tensor& qkv, int64_t heads, int64_t kv_heads, const at::Tensor& cos_given, const at::Tensor& sin_given,
    const OptionalTensor& positions, const OptionalTensor& q_weight_given, const OptionalTensor& k_weight_given,
    double eps, double weight_offset, bool interleaved, std::optional<int64_t> rotary_dim) {
  at::Tensor q_weight = or_undefined(q_weight_given);
  at::Tensor k_weight = or_undefined(k_weight_given);
  const Sizes sizes = check_qkv(qkv, heads, kv_heads, cos_given, sin_given, positions, q_weight, k_weight, rotary_dim);
  const std::optional<NormDtypes> dtypes = norm_dtypes(qkv, q_weight.defined() ? q_weight : k_weight);
  const std::optional<mudnn::Dtype> angle_dtype = mudnn_dtype(cos_given.scalar_type());
  if (!dtypes.has_value() || !angle_dtype.has_value() ||
      (q_weight.defined() && k_weight.defined() && q_weight.scalar_type() != k_weight.scalar_type())) {
    note_reference();
    return qkv_norm_rope_reference(
        qkv, heads, kv_heads, cos_given, sin_given, positions, q_weight_given, k_weight_given, eps, weight_offset,
        interleaved, rotary_dim);
  }
  const int64_t dim = sizes.head_dim.expect_int();
  at::Tensor cos = with_adjacent_columns(cos_given);
  at::Tensor sin = with_adjacent_columns(sin_given);
  if (cos.stride(0) != sin.stride(0)) {
    cos = cos.contiguous();
    sin = sin.contiguous();
  }
  const at::Tensor index = checked_positions(positions, cos);
  for (at::Tensor* weight : {&q_weight, &k_weight}) {
    *weight = weight->defined() ? weight->contiguous() : *weight;
  }
  const auto out = [&](int64_t count) {
    return fresh(C10_AS_INTARRAYREF_SLOW(heads_of(qkv, count, dim)), qkv.scalar_type());
  };
  at::Tensor keep;
  const mudnn::ConstRows rows = rows_or_copy(qkv, keep);
  ThreeTensors result{out(heads), out(kv_heads), out(kv_heads)};
  mudnn::split_qkv(
      {.dtype = dtypes->rows,
       .weight_dtype = dtypes->weight,
       .angle_dtype = *angle_dtype,
       .tokens = sizes.tokens.expect_int(),
       .heads = heads,
       .kv_heads = kv_heads,
       .head_dim = dim,
       .qkv = rows,
       .q_weight = data_or_null(q_weight),
       .k_weight = data_or_null(k_weight),
       .weight_offset = static_cast<float>(weight_offset),
       .eps = eps,
       .rotary_dim = sizes.rotary_dim.expect_int(),
       .interleaved = interleaved,
       .whole = cos.size(1) == sizes.rotary_dim.expect_int(),
       .cos = cos.const_data_ptr(),
       .sin = sin.const_data_ptr(),
       .angle_stride = cos.stride(0),
       .positions = index.defined() ? index.const_data_ptr<int64_t>() : nullptr,
       .q = std::get<0>(result).mutable_data_ptr(),
       .k = std::get<1>(result).mutable_data_ptr(),
       .v = std::get<2>(result).mutable_data_ptr()},
      torch_threads());
  return result;
}

/// qkv in and out again, and of the angles the rows that are read.
OpCost qkv_norm_rope_cost(const c10::IValue* arguments) {
  const at::Tensor& qkv = arguments[0].toTensor();
  const at::Tensor& cos = arguments[3].toTensor();
  const auto numbers = static_cast<double>(qkv.numel());
  const double tokens = qkv.dim() == 0 ? 0 : numbers / static_cast<double>(std::max<int64_t>(1, qkv.size(-1)));
  const double of_token = 2.0 * static_cast<double>(cos.size(-1)) * static_cast<double>(cos.itemsize()) +
      (arguments[5].isTensor() ? static_cast<double>(arguments[5].toTensor().itemsize()) : 0.0);
  double bytes = 2 * numbers * static_cast<double>(qkv.itemsize()) + tokens * of_token;
  for (const int weight : {6, 7}) {
    bytes += arguments[weight].isTensor() ? static_cast<double>(arguments[weight].toTensor().nbytes()) : 0.0;
  }
  constexpr double kOperationsEach = 6;  // square, sum, scale, weight and two of the rotation
  return {.flops = kOperationsEach * numbers, .bytes = bytes};
}

// ---- meta kernel

ThreeTensors qkv_norm_rope_meta(
    const at::Tensor& qkv, int64_t heads, int64_t kv_heads, const at::Tensor& cos, const at::Tensor& sin,
    const OptionalTensor& positions, const OptionalTensor& q_weight, const OptionalTensor& k_weight, double, double,
    bool, std::optional<int64_t> rotary_dim) {
  const Sizes sizes =
      check_qkv(qkv, heads, kv_heads, cos, sin, positions, or_undefined(q_weight), or_undefined(k_weight), rotary_dim);
  const auto out = [&](int64_t count) { return at::empty_symint(heads_of(qkv, count, sizes.head_dim), qkv.options()); };
  return {out(heads), out(kv_heads), out(kv_heads)};
}

constexpr char kQkvNormRope[] = "musa::qkv_norm_rope";

MUSA_NATIVE_KERNEL(kQkvNormRope, qkv_norm_rope, qkv_norm_rope_cost);

TORCH_LIBRARY_FRAGMENT(musa, library) {
  library.def(
      "qkv_norm_rope(Tensor qkv, int heads, int kv_heads, Tensor cos, Tensor sin, *, Tensor? positions=None, Tensor? "
      "q_weight=None, Tensor? k_weight=None, float eps=1e-6, float weight_offset=0.0, bool interleaved=False, int? "
      "rotary_dim=None) -> (Tensor q, Tensor k, Tensor v)");
}

TORCH_LIBRARY_IMPL(musa, CPU, library) { library.impl("qkv_norm_rope", TORCH_FN(qkv_norm_rope_reference)); }

TORCH_LIBRARY_IMPL(musa, Meta, library) { library.impl("qkv_norm_rope", TORCH_FN(qkv_norm_rope_meta)); }

TORCH_LIBRARY_IMPL(musa, Autograd, library) {
  library.impl("qkv_norm_rope", TORCH_FN((Differentiable<kQkvNormRope, qkv_norm_rope_formula>::call)));
}

}  // namespace
}  // namespace musa
