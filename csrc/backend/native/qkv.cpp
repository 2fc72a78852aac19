// musa::qkv_norm_rope and qkv_norm_rope_append: from the product of the three projections to what attention takes.
#include "mudnn/qkv.h"

#include <ATen/ops/empty.h>
#include <torch/library.h>

#include <algorithm>
#include <array>

#include "backend/native/differentiable.h"
#include "backend/native/kernels.h"
#include "backend/native/kv_pages.h"
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

/// Where keys and values go in pages.
struct Target {
  const at::Tensor& key_pages;
  const at::Tensor& value_pages;
  const at::Tensor& slots;  // contiguous, checked
};

/// q, and k and v where there is no target; nothing where the kernel isn't made for the operands.
std::optional<ThreeTensors> split(
    const at::Tensor& qkv, int64_t heads, int64_t kv_heads, const at::Tensor& cos_given, const at::Tensor& sin_given,
    const OptionalTensor& positions, const OptionalTensor& q_weight_given, const OptionalTensor& k_weight_given,
    double eps, double weight_offset, bool interleaved, std::optional<int64_t> rotary_dim, const Target* target) {
  at::Tensor q_weight = or_undefined(q_weight_given);
  at::Tensor k_weight = or_undefined(k_weight_given);
  const Sizes sizes = check_qkv(qkv, heads, kv_heads, cos_given, sin_given, positions, q_weight, k_weight, rotary_dim);
  const std::optional<NormDtypes> dtypes = norm_dtypes(qkv, q_weight.defined() ? q_weight : k_weight);
  const std::optional<mudnn::Dtype> angle_dtype = mudnn_dtype(cos_given.scalar_type());
  if (!dtypes.has_value() || !angle_dtype.has_value() ||
      (q_weight.defined() && k_weight.defined() && q_weight.scalar_type() != k_weight.scalar_type())) {
    note_reference();
    return std::nullopt;
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
  ThreeTensors result{out(heads), at::Tensor(), at::Tensor()};
  mudnn::QkvProblem problem{
      .dtype = dtypes->rows,
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
      .k = nullptr,
      .v = nullptr};
  if (target == nullptr) {
    std::get<1>(result) = out(kv_heads);
    std::get<2>(result) = out(kv_heads);
    problem.k = std::get<1>(result).mutable_data_ptr();
    problem.v = std::get<2>(result).mutable_data_ptr();
  } else {
    problem.slots = target->slots.const_data_ptr<int64_t>();
    problem.pages = pages_of(target->key_pages);
    problem.key_pages = target->key_pages.mutable_data_ptr();
    problem.value_pages = target->value_pages.mutable_data_ptr();
  }
  mudnn::split_qkv(problem, torch_threads());
  return result;
}

ThreeTensors qkv_norm_rope(
    const at::Tensor& qkv, int64_t heads, int64_t kv_heads, const at::Tensor& cos, const at::Tensor& sin,
    const OptionalTensor& positions, const OptionalTensor& q_weight, const OptionalTensor& k_weight, double eps,
    double weight_offset, bool interleaved, std::optional<int64_t> rotary_dim) {
  std::optional<ThreeTensors> result = split(
      qkv, heads, kv_heads, cos, sin, positions, q_weight, k_weight, eps, weight_offset, interleaved, rotary_dim,
      nullptr);
  return result.has_value()
      ? std::move(*result)
      : qkv_norm_rope_reference(
            qkv, heads, kv_heads, cos, sin, positions, q_weight, k_weight, eps, weight_offset, interleaved, rotary_dim);
}

// ---- with the cache

/// Number of query heads.
int64_t check_append(
    const at::Tensor& qkv, const at::Tensor& key_pages, const at::Tensor& value_pages, const at::Tensor& slots) {
  check_pages("qkv_norm_rope_append", key_pages, value_pages);
  TORCH_CHECK(
      key_pages.sym_sizes() == value_pages.sym_sizes() && key_pages.scalar_type() == qkv.scalar_type() &&
          qkv.dim() >= 1,
      "qkv_norm_rope_append takes pages of keys and of values of one shape and of the dtype of qkv, ",
      qkv.scalar_type(), "; got ", key_pages.scalar_type(), " ", key_pages.sym_sizes(), " and ",
      value_pages.sym_sizes());
  const c10::SymInt dim = key_pages.sym_size(3);
  const c10::SymInt queries = qkv.sym_size(-1) - 2 * key_pages.sym_size(1) * dim;
  TORCH_CHECK(
      queries > 0 && queries % dim == 0, "qkv_norm_rope_append takes a qkv of shape [..., (heads + 2 * ",
      key_pages.sym_size(1), ") * ", dim, "] for these pages, got ", qkv.sym_sizes());
  TORCH_CHECK(
      slots.scalar_type() == at::kLong && slots.sym_numel() * qkv.sym_size(-1) == qkv.sym_numel(),
      "qkv_norm_rope_append takes a slot of int64 for each token, got ", slots.scalar_type(), " of shape ",
      slots.sym_sizes(), " for qkv ", qkv.sym_sizes());
  return (queries / dim).guard_int(__FILE__, __LINE__);
}

at::Tensor qkv_norm_rope_append_reference(
    const at::Tensor& qkv, const at::Tensor& key_pages, const at::Tensor& value_pages, const at::Tensor& slots,
    const at::Tensor& cos, const at::Tensor& sin, const OptionalTensor& positions, const OptionalTensor& q_weight,
    const OptionalTensor& k_weight, double eps, double weight_offset, bool interleaved,
    std::optional<int64_t> rotary_dim) {
  using Append = void(const at::Tensor&, const at::Tensor&, const at::Tensor&, const at::Tensor&, const at::Tensor&);
  static const auto append = c10::Dispatcher::singleton().findSchemaOrThrow("musa::kv_append", "").typed<Append>();
  const int64_t heads = check_append(qkv, key_pages, value_pages, slots);
  auto [q, k, v] = qkv_norm_rope_reference(
      qkv, heads, key_pages.size(1), cos, sin, positions, q_weight, k_weight, eps, weight_offset, interleaved,
      rotary_dim);
  const std::array<int64_t, 3> rows{slots.numel(), key_pages.size(1), key_pages.size(3)};
  append.call(key_pages, value_pages, k.reshape(rows), v.reshape(rows), slots.flatten());
  return q;
}

at::Tensor qkv_norm_rope_append(
    const at::Tensor& qkv, const at::Tensor& key_pages, const at::Tensor& value_pages, const at::Tensor& slots,
    const at::Tensor& cos, const at::Tensor& sin, const OptionalTensor& positions, const OptionalTensor& q_weight,
    const OptionalTensor& k_weight, double eps, double weight_offset, bool interleaved,
    std::optional<int64_t> rotary_dim) {
  const int64_t heads = check_append(qkv, key_pages, value_pages, slots);
  const at::Tensor index = slots.contiguous();
  const int64_t end = key_pages.size(0) * key_pages.size(2);
  for (int64_t i = 0; i < index.numel(); ++i) {
    const int64_t slot = index.const_data_ptr<int64_t>()[i];
    TORCH_CHECK_INDEX(
        slot < end, "qkv_norm_rope_append was given slot ", slot, " for token ", i, ", but the pages have slots 0 .. ",
        end - 1, "; a negative slot leaves a token out");
  }
  const Target target{key_pages, value_pages, index};
  std::optional<ThreeTensors> result = split(
      qkv, heads, key_pages.size(1), cos, sin, positions, q_weight, k_weight, eps, weight_offset, interleaved,
      rotary_dim, &target);
  return result.has_value() ? std::get<0>(*result)
                            : qkv_norm_rope_append_reference(
                                  qkv, key_pages, value_pages, slots, cos, sin, positions, q_weight, k_weight, eps,
                                  weight_offset, interleaved, rotary_dim);
}

/// qkv in and out again, and of the angles the rows that are read.
OpCost cost_of(const c10::IValue* arguments, int cos_index) {
  const at::Tensor& qkv = arguments[0].toTensor();
  const at::Tensor& cos = arguments[cos_index].toTensor();
  const auto numbers = static_cast<double>(qkv.numel());
  const double tokens = qkv.dim() == 0 ? 0 : numbers / static_cast<double>(std::max<int64_t>(1, qkv.size(-1)));
  const double of_token = 2.0 * static_cast<double>(cos.size(-1)) * static_cast<double>(cos.itemsize()) +
      (arguments[cos_index + 2].isTensor() ? static_cast<double>(arguments[cos_index + 2].toTensor().itemsize()) : 0.0);
  double bytes = 2 * numbers * static_cast<double>(qkv.itemsize()) + tokens * of_token;
  for (const int weight : {cos_index + 3, cos_index + 4}) {
    bytes += arguments[weight].isTensor() ? static_cast<double>(arguments[weight].toTensor().nbytes()) : 0.0;
  }
  constexpr double kOperationsEach = 6;  // square, sum, scale, weight and two of the rotation
  return {.flops = kOperationsEach * numbers, .bytes = bytes};
}

OpCost qkv_norm_rope_cost(const c10::IValue* arguments) { return cost_of(arguments, 3); }

OpCost qkv_norm_rope_append_cost(const c10::IValue* arguments) {
  OpCost cost = cost_of(arguments, 4);
  cost.bytes += static_cast<double>(arguments[3].toTensor().nbytes());
  return cost;
}

// ---- meta and autograd

ThreeTensors qkv_norm_rope_meta(
    const at::Tensor& qkv, int64_t heads, int64_t kv_heads, const at::Tensor& cos, const at::Tensor& sin,
    const OptionalTensor& positions, const OptionalTensor& q_weight, const OptionalTensor& k_weight, double, double,
    bool, std::optional<int64_t> rotary_dim) {
  const Sizes sizes =
      check_qkv(qkv, heads, kv_heads, cos, sin, positions, or_undefined(q_weight), or_undefined(k_weight), rotary_dim);
  const auto out = [&](int64_t count) { return at::empty_symint(heads_of(qkv, count, sizes.head_dim), qkv.options()); };
  return {out(heads), out(kv_heads), out(kv_heads)};
}

at::Tensor qkv_norm_rope_append_meta(
    const at::Tensor& qkv, const at::Tensor& key_pages, const at::Tensor& value_pages, const at::Tensor& slots,
    const at::Tensor& cos, const at::Tensor& sin, const OptionalTensor& positions, const OptionalTensor& q_weight,
    const OptionalTensor& k_weight, double, double, bool, std::optional<int64_t> rotary_dim) {
  const int64_t heads = check_append(qkv, key_pages, value_pages, slots);
  const int64_t kv_heads = key_pages.sym_size(1).guard_int(__FILE__, __LINE__);
  const Sizes sizes =
      check_qkv(qkv, heads, kv_heads, cos, sin, positions, or_undefined(q_weight), or_undefined(k_weight), rotary_dim);
  return at::empty_symint(heads_of(qkv, heads, sizes.head_dim), qkv.options());
}

at::Tensor qkv_norm_rope_append_autograd(
    const at::Tensor& qkv, const at::Tensor& key_pages, const at::Tensor& value_pages, const at::Tensor& slots,
    const at::Tensor& cos, const at::Tensor& sin, const OptionalTensor& positions, const OptionalTensor& q_weight,
    const OptionalTensor& k_weight, double eps, double weight_offset, bool interleaved,
    std::optional<int64_t> rotary_dim) {
  TORCH_CHECK(
      !wants_derivative(qkv) && !wants_derivative(key_pages) && !wants_derivative(value_pages) &&
          !wants_derivative(cos) && !wants_derivative(sin) && !wants_derivative(q_weight) &&
          !wants_derivative(k_weight),
      "qkv_norm_rope_append has no derivative; use qkv_norm_rope, or call it under torch.no_grad()");
  static const auto op = c10::Dispatcher::singleton()
                             .findSchemaOrThrow("musa::qkv_norm_rope_append", "")
                             .typed<decltype(qkv_norm_rope_append)>();
  const at::Tensor q = [&] {
    const at::AutoDispatchBelowADInplaceOrView below;
    return op.call(
        qkv, key_pages, value_pages, slots, cos, sin, positions, q_weight, k_weight, eps, weight_offset, interleaved,
        rotary_dim);
  }();
  for (const at::Tensor& written : {key_pages, value_pages}) {
    if (!written.is_inference()) {
      written.unsafeGetTensorImpl()->bump_version();
    }
  }
  return q;
}

constexpr char kQkvNormRope[] = "musa::qkv_norm_rope";

MUSA_NATIVE_KERNEL(kQkvNormRope, qkv_norm_rope, qkv_norm_rope_cost);
MUSA_NATIVE_KERNEL("musa::qkv_norm_rope_append", qkv_norm_rope_append, qkv_norm_rope_append_cost);

TORCH_LIBRARY_FRAGMENT(musa, library) {
  library.def(
      "qkv_norm_rope(Tensor qkv, int heads, int kv_heads, Tensor cos, Tensor sin, *, Tensor? positions=None, Tensor? "
      "q_weight=None, Tensor? k_weight=None, float eps=1e-6, float weight_offset=0.0, bool interleaved=False, int? "
      "rotary_dim=None) -> (Tensor q, Tensor k, Tensor v)");
  library.def(
      "qkv_norm_rope_append(Tensor qkv, Tensor(a!) key_pages, Tensor(b!) value_pages, Tensor slots, Tensor cos, Tensor "
      "sin, *, Tensor? positions=None, Tensor? q_weight=None, Tensor? k_weight=None, float eps=1e-6, float "
      "weight_offset=0.0, bool interleaved=False, int? rotary_dim=None) -> Tensor");
}

TORCH_LIBRARY_IMPL(musa, CPU, library) {
  library.impl("qkv_norm_rope", TORCH_FN(qkv_norm_rope_reference));
  library.impl("qkv_norm_rope_append", TORCH_FN(qkv_norm_rope_append_reference));
}

TORCH_LIBRARY_IMPL(musa, Meta, library) {
  library.impl("qkv_norm_rope", TORCH_FN(qkv_norm_rope_meta));
  library.impl("qkv_norm_rope_append", TORCH_FN(qkv_norm_rope_append_meta));
}

TORCH_LIBRARY_IMPL(musa, Autograd, library) {
  library.impl("qkv_norm_rope", TORCH_FN((Differentiable<kQkvNormRope, qkv_norm_rope_formula>::call)));
  library.impl("qkv_norm_rope_append", TORCH_FN(qkv_norm_rope_append_autograd));
}

}  // namespace
}  // namespace musa
