// musa::route_experts and musa::group_by_expert.
#include "mudnn/routing.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/_softmax.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/sigmoid.h>
#include <ATen/ops/sort.h>
#include <ATen/ops/topk.h>
#include <ATen/ops/zeros_like.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/library.h>

#include "backend/native/differentiable.h"
#include "backend/native/kernels.h"
#include "backend/native/tensors.h"

namespace musa {
namespace {

using Pair = std::tuple<at::Tensor, at::Tensor>;

constexpr double kLeastSum = 1e-20;  // added to the sum that weights are divided by

struct Limits {
  int64_t k;
  int64_t groups;
  int64_t top_groups;
  int64_t group_best;
};

void check_route(const at::Tensor& logits, const std::optional<at::Tensor>& bias, c10::string_view scores, Limits l) {
  TORCH_CHECK(
      logits.dim() >= 1 && logits.is_floating_point(), "route_experts takes floating point logits of shape ",
      "[..., experts], got ", logits.scalar_type(), " of shape ", logits.sym_sizes());
  TORCH_CHECK_VALUE(
      scores == "softmax" || scores == "sigmoid", "route_experts: scores is 'softmax' or 'sigmoid', got '", scores,
      "'");
  const c10::SymInt experts = logits.sym_size(-1);
  TORCH_CHECK_VALUE(
      l.groups >= 1 && experts % l.groups == 0 && l.top_groups >= 1 && l.top_groups <= l.groups,
      "route_experts: groups must divide the number of experts and 1 <= top_groups <= groups; got ", experts,
      " experts, groups=", l.groups, ", top_groups=", l.top_groups);
  TORCH_CHECK_VALUE(
      l.group_best == 1 || (l.group_best == 2 && (l.groups == l.top_groups || experts / l.groups >= 2)),
      "route_experts: group_best is 1 or 2, at most the experts of a group; got ", l.group_best);
  TORCH_CHECK_VALUE(
      l.k >= 1 && l.k <= experts / l.groups * l.top_groups, "route_experts: top_k must be 1 .. ",
      experts / l.groups * l.top_groups, " (the experts that may be chosen), got ", l.k);
  TORCH_CHECK(
      !bias.has_value() || (bias->dim() == 1 && bias->sym_size(0) == experts),
      "route_experts: bias has one number for each of the ", experts, " experts, got shape ",
      bias.has_value() ? bias->sym_sizes() : c10::SymIntArrayRef());
}

Pair route_outputs(const at::Tensor& logits, int64_t k) {
  std::vector<c10::SymInt> sizes = logits.sym_sizes().vec();
  sizes.back() = k;
  return {
      at::empty_symint(sizes, logits.options().dtype(at::kFloat)),
      at::empty_symint(sizes, logits.options().dtype(at::kLong))};
}

at::Tensor scores_of(const at::Tensor& logits, c10::string_view scores) {
  const at::Tensor wide = logits.to(at::kFloat);
  return scores == "softmax" ? at::_softmax(wide, -1, false) : at::sigmoid(wide);
}

/// The k largest, of equal ones the lowest index first.
at::Tensor stable_top(const at::Tensor& x, int64_t k) {
  return std::get<1>(at::sort(x, /*stable=*/true, /*dim=*/-1, /*descending=*/true)).narrow(-1, 0, k);
}

Pair route_experts_meta(
    const at::Tensor& logits, int64_t top_k, c10::string_view scores, const std::optional<at::Tensor>& bias,
    int64_t groups, int64_t top_groups, int64_t group_best, bool /*renormalize*/, double /*scaling*/) {
  check_route(logits, bias, scores, {top_k, groups, top_groups, group_best});
  return route_outputs(logits, top_k);
}

Pair route_experts_reference(
    const at::Tensor& logits, int64_t top_k, c10::string_view scores, const std::optional<at::Tensor>& bias,
    int64_t groups, int64_t top_groups, int64_t group_best, bool renormalize, double scaling) {
  check_route(logits, bias, scores, {top_k, groups, top_groups, group_best});
  const at::Tensor all = scores_of(logits, scores);
  at::Tensor choice = bias.has_value() ? all + bias->to(at::kFloat) : all;
  if (top_groups < groups) {
    const at::Tensor grouped = choice.unflatten(-1, {groups, choice.size(-1) / groups});
    const at::Tensor group_scores = std::get<0>(at::topk(grouped, group_best)).sum(-1);
    const at::Tensor masked = at::zeros_like(group_scores).to(at::kBool).logical_not();
    masked.scatter_(-1, stable_top(group_scores, top_groups), false);
    choice = grouped.masked_fill(masked.unsqueeze(-1), -std::numeric_limits<double>::infinity()).flatten(-2);
  }
  const at::Tensor ids = stable_top(choice, top_k).contiguous();
  at::Tensor weights = all.gather(-1, ids);
  if (renormalize) {
    weights = weights / (weights.sum(-1, /*keepdim=*/true) + kLeastSum);
  }
  return {weights * scaling, ids};
}

Pair route_experts(
    const at::Tensor& logits, int64_t top_k, c10::string_view scores, const std::optional<at::Tensor>& bias,
    int64_t groups, int64_t top_groups, int64_t group_best, bool renormalize, double scaling) {
  check_route(logits, bias, scores, {top_k, groups, top_groups, group_best});
  // PyTorch's own scores: with any other exponential, near ties would go to other experts than by the plain formula.
  const at::Tensor all = scores_of(logits, scores).contiguous();
  const at::Tensor wide_bias = bias.has_value() ? bias->to(at::kFloat).contiguous() : at::Tensor();
  Pair out = route_outputs(logits, top_k);
  const int64_t experts = all.size(-1);
  mudnn::route_experts(
      {.tokens = all.numel() / experts,
       .experts = experts,
       .k = top_k,
       .scores = all.const_data_ptr<float>(),
       .bias = wide_bias.defined() ? wide_bias.const_data_ptr<float>() : nullptr,
       .groups = groups,
       .top_groups = top_groups,
       .group_best = group_best,
       .renormalize = renormalize,
       .scaling = static_cast<float>(scaling),
       .weights = std::get<0>(out).mutable_data_ptr<float>(),
       .ids = std::get<1>(out).mutable_data_ptr<int64_t>()},
      torch_threads());
  return out;
}

Pair call_route_experts(
    const at::Tensor& logits, int64_t top_k, c10::string_view scores, const std::optional<at::Tensor>& bias,
    int64_t groups, int64_t top_groups, int64_t group_best, bool renormalize, double scaling) {
  static const auto op =
      c10::Dispatcher::singleton().findSchemaOrThrow("musa::route_experts", "").typed<decltype(call_route_experts)>();
  return op.call(logits, top_k, scores, bias, groups, top_groups, group_best, renormalize, scaling);
}

/// The weights have a gradient for the logits; the choice and its bias have none.
class RouteExperts : public torch::autograd::Function<RouteExperts> {
 public:
  static torch::autograd::variable_list forward(
      torch::autograd::AutogradContext* context, const at::Tensor& logits, int64_t top_k, const std::string& scores,
      const std::optional<at::Tensor>& bias, int64_t groups, int64_t top_groups, int64_t group_best, bool renormalize,
      double scaling) {
    const at::AutoDispatchBelowADInplaceOrView below;
    auto [weights, ids] =
        call_route_experts(logits, top_k, scores, bias, groups, top_groups, group_best, renormalize, scaling);
    context->save_for_backward({logits, ids});
    context->saved_data["scores"] = scores;
    context->saved_data["renormalize"] = renormalize;
    context->saved_data["scaling"] = scaling;
    context->mark_non_differentiable({ids});
    return {weights, ids};
  }

  static torch::autograd::variable_list backward(
      torch::autograd::AutogradContext* context, const torch::autograd::variable_list& gradients) {
    const torch::autograd::variable_list saved = context->get_saved_variables();
    const at::Tensor& logits = saved[0];
    const at::Tensor& ids = saved[1];
    const bool is_softmax = context->saved_data["scores"].toStringRef() == "softmax";
    const at::Tensor wide = logits.to(at::kFloat);
    const at::Tensor all = is_softmax ? wide.softmax(-1) : wide.sigmoid();
    at::Tensor gradient = gradients[0] * context->saved_data["scaling"].toDouble();
    if (context->saved_data["renormalize"].toBool()) {
      const at::Tensor kept = all.gather(-1, ids);
      const at::Tensor sum = kept.sum(-1, /*keepdim=*/true) + kLeastSum;
      gradient = (gradient - (gradient * kept / sum).sum(-1, /*keepdim=*/true)) / sum;
    }
    const at::Tensor spread = at::zeros_like(all).scatter_add(-1, ids, gradient);
    const at::Tensor result =
        is_softmax ? all * (spread - (spread * all).sum(-1, /*keepdim=*/true)) : spread * all * (1 - all);
    torch::autograd::variable_list every(9);
    every[0] = result.to(logits.scalar_type());
    return every;
  }
};

Pair route_experts_autograd(
    const at::Tensor& logits, int64_t top_k, c10::string_view scores, const std::optional<at::Tensor>& bias,
    int64_t groups, int64_t top_groups, int64_t group_best, bool renormalize, double scaling) {
  if (!wants_derivative(logits)) {
    const at::AutoDispatchBelowADInplaceOrView below;
    return call_route_experts(logits, top_k, scores, bias, groups, top_groups, group_best, renormalize, scaling);
  }
  auto out = RouteExperts::apply(
      logits, top_k, std::string(scores), bias, groups, top_groups, group_best, renormalize, scaling);
  return {out[0], out[1]};
}

void check_group(const at::Tensor& ids, int64_t num_experts) {
  TORCH_CHECK(
      ids.scalar_type() == at::kLong || ids.scalar_type() == at::kInt, "group_by_expert takes int32 or int64 ids, got ",
      ids.scalar_type());
  TORCH_CHECK_VALUE(num_experts >= 0, "group_by_expert: num_experts must not be negative, got ", num_experts);
}

Pair group_by_expert_meta(const at::Tensor& ids, int64_t num_experts) {
  check_group(ids, num_experts);
  const at::TensorOptions options = ids.options().dtype(at::kLong);
  return {at::empty_symint({ids.sym_numel()}, options), at::empty({num_experts}, options)};
}

Pair group_by_expert_reference(const at::Tensor& ids, int64_t num_experts) {
  check_group(ids, num_experts);
  const at::Tensor flat = ids.flatten().to(at::kLong);
  const at::Tensor experts = flat.masked_fill((flat < 0).logical_or(flat >= num_experts), num_experts);
  return {
      std::get<1>(at::sort(experts, /*stable=*/true, /*dim=*/0, /*descending=*/false)),
      experts.bincount({}, num_experts + 1).narrow(0, 0, num_experts).clone()};
}

Pair group_by_expert(const at::Tensor& ids, int64_t num_experts) {
  Pair out = group_by_expert_meta(ids, num_experts);
  const at::Tensor flat = ids.contiguous();
  auto* order = std::get<0>(out).mutable_data_ptr<int64_t>();
  auto* counts = std::get<1>(out).mutable_data_ptr<int64_t>();
  if (flat.scalar_type() == at::kInt) {
    mudnn::group_by_expert(flat.const_data_ptr<int32_t>(), flat.numel(), num_experts, order, counts);
  } else {
    mudnn::group_by_expert(flat.const_data_ptr<int64_t>(), flat.numel(), num_experts, order, counts);
  }
  return out;
}

MUSA_NATIVE_KERNEL("musa::route_experts", route_experts);
MUSA_NATIVE_KERNEL("musa::group_by_expert", group_by_expert);

TORCH_LIBRARY_FRAGMENT(musa, library) {
  library.def(
      "route_experts(Tensor logits, int top_k, *, str scores='softmax', Tensor? bias=None, int groups=1, "
      "int top_groups=1, int group_best=2, bool renormalize=False, float scaling=1.0) -> (Tensor weights, Tensor ids)");
  library.def("group_by_expert(Tensor ids, int num_experts) -> (Tensor order, Tensor counts)");
}
TORCH_LIBRARY_IMPL(musa, Meta, library) {
  library.impl("route_experts", TORCH_FN(route_experts_meta));
  library.impl("group_by_expert", TORCH_FN(group_by_expert_meta));
}
TORCH_LIBRARY_IMPL(musa, CPU, library) {
  library.impl("route_experts", TORCH_FN(route_experts_reference));
  library.impl("group_by_expert", TORCH_FN(group_by_expert_reference));
}
TORCH_LIBRARY_IMPL(musa, AutogradCPU, library) { library.impl("route_experts", TORCH_FN(route_experts_autograd)); }
TORCH_LIBRARY_IMPL(musa, AutogradPrivateUse1, library) {
  library.impl("route_experts", TORCH_FN(route_experts_autograd));
}

}  // namespace
}  // namespace musa
