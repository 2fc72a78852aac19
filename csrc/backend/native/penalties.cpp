// musa::penalize_logits.
#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros.h>
#include <torch/library.h>

#include <algorithm>
#include <vector>

#include "backend/native/kernels.h"
#include "backend/native/tensors.h"

namespace musa {
namespace {

using Optional = std::optional<at::Tensor>;

void check_penalties(
    const at::Tensor& logits, const at::Tensor& tokens, const Optional& prompt_lengths, const Optional& repetition,
    const Optional& frequency, const Optional& presence, const Optional& bias_ids, const Optional& bias) {
  const auto is_integral = [](const at::Tensor& tensor) {
    return at::isIntegralType(tensor.scalar_type(), /*includeBool=*/false);
  };
  TORCH_CHECK(
      logits.dim() == 2 && logits.is_floating_point() && tokens.dim() == 2 && is_integral(tokens) &&
          tokens.sym_size(0) == logits.sym_size(0),
      "penalize_logits takes floating point logits [rows, vocabulary] and integer tokens [rows, n]; got ",
      logits.scalar_type(), " ", logits.sym_sizes(), " and ", tokens.scalar_type(), " ", tokens.sym_sizes());
  const std::pair<const char*, const Optional&> columns[] = {
      {"prompt_lengths", prompt_lengths}, {"repetition", repetition}, {"frequency", frequency}, {"presence", presence}};
  for (const auto& [name, values] : columns) {
    const bool integral = values.has_value() && &values == &prompt_lengths;
    TORCH_CHECK(
        !values.has_value() ||
            (values->dim() == 1 && values->sym_size(0) == logits.sym_size(0) && is_integral(*values) == integral),
        "penalize_logits: ", name, " has one ", integral ? "integer" : "floating point number", " for each of the ",
        logits.sym_size(0), " rows of logits");
  }
  TORCH_CHECK(
      bias_ids.has_value() == bias.has_value() &&
          (!bias.has_value() ||
           (bias->dim() == 2 && bias->is_floating_point() && is_integral(*bias_ids) &&
            bias->sym_sizes() == bias_ids->sym_sizes() && bias->sym_size(0) == logits.sym_size(0))),
      "penalize_logits: bias_ids (integer) and bias (floating point) come together, both [rows, m]");
}

at::Tensor penalize_logits_meta(
    const at::Tensor& logits, const at::Tensor& tokens, const Optional& prompt_lengths, const Optional& repetition,
    const Optional& frequency, const Optional& presence, const Optional& bias_ids, const Optional& bias) {
  check_penalties(logits, tokens, prompt_lengths, repetition, frequency, presence, bias_ids, bias);
  return at::empty_symint(logits.sym_sizes(), logits.options().dtype(at::kFloat));
}

/// Adds `values` at `ids` of each row, where these are inside the vocabulary.
at::Tensor added_at(const at::Tensor& to, const at::Tensor& ids, const at::Tensor& values) {
  const at::Tensor wide = ids.to(at::kLong);
  const at::Tensor inside = (wide >= 0).logical_and(wide < to.size(1));
  return to.scatter_add(1, wide.masked_fill(inside.logical_not(), 0), values.masked_fill(inside.logical_not(), 0));
}

at::Tensor penalize_logits_reference(
    const at::Tensor& logits, const at::Tensor& tokens, const Optional& prompt_lengths, const Optional& repetition,
    const Optional& frequency, const Optional& presence, const Optional& bias_ids, const Optional& bias) {
  check_penalties(logits, tokens, prompt_lengths, repetition, frequency, presence, bias_ids, bias);
  at::Tensor out = logits.to(at::kFloat, /*non_blocking=*/false, /*copy=*/true);
  if (logits.numel() == 0) {
    return out;
  }
  const at::Tensor none = at::zeros(logits.sizes(), out.options());
  const at::Tensor place = at::arange(tokens.size(1), tokens.options().dtype(at::kLong)).unsqueeze(0);
  const at::Tensor one = at::zeros(tokens.sizes(), out.options()) + 1;
  const at::Tensor answered = prompt_lengths.has_value() ? (place >= prompt_lengths->unsqueeze(1)).to(at::kFloat) : one;
  if (repetition.has_value()) {
    const at::Tensor factor = repetition->to(at::kFloat).unsqueeze(1);
    out = at::where(added_at(none, tokens, one) > 0, at::where(out > 0, out / factor, out * factor), out);
  }
  const at::Tensor counts = added_at(none, tokens, one * answered);
  if (frequency.has_value()) {
    out = out - frequency->to(at::kFloat).unsqueeze(1) * counts;
  }
  if (presence.has_value()) {
    out = at::where(counts > 0, out - presence->to(at::kFloat).unsqueeze(1), out);
  }
  return bias.has_value() ? added_at(out, *bias_ids, bias->to(at::kFloat)) : out;
}

at::Tensor penalize_logits(
    const at::Tensor& logits, const at::Tensor& tokens, const Optional& prompt_lengths, const Optional& repetition,
    const Optional& frequency, const Optional& presence, const Optional& bias_ids, const Optional& bias) {
  check_penalties(logits, tokens, prompt_lengths, repetition, frequency, presence, bias_ids, bias);
  at::Tensor out = logits.to(at::kFloat, /*non_blocking=*/false, /*copy=*/true).contiguous();
  const at::Tensor all = tokens.to(at::kLong).contiguous();
  const auto numbers = [](const Optional& values, at::ScalarType type) {
    return values.has_value() ? values->to(type).contiguous() : at::Tensor();
  };
  const at::Tensor lengths = numbers(prompt_lengths, at::kLong);
  const at::Tensor repeat = numbers(repetition, at::kFloat);
  const at::Tensor often = numbers(frequency, at::kFloat);
  const at::Tensor present = numbers(presence, at::kFloat);
  const at::Tensor ids = numbers(bias_ids, at::kLong);
  const at::Tensor more = numbers(bias, at::kFloat);
  const auto at_row = [](const at::Tensor& values, int64_t row, float otherwise) {
    return values.defined() ? values.const_data_ptr<float>()[row] : otherwise;
  };
  const int64_t vocabulary = logits.size(1);
  const int64_t size = tokens.size(1);
  std::vector<int64_t> seen;
  for (int64_t row = 0; row < logits.size(0); ++row) {
    float* scores = out.mutable_data_ptr<float>() + row * vocabulary;
    const int64_t* from = all.const_data_ptr<int64_t>() + row * size;
    const int64_t prompt = lengths.defined() ? std::clamp<int64_t>(lengths.const_data_ptr<int64_t>()[row], 0, size) : 0;
    // In one sorted list: a token and whether the answer has it, so that equal ones stand side by side.
    seen.clear();
    for (int64_t i = 0; i < size; ++i) {
      if (from[i] >= 0 && from[i] < vocabulary) {
        seen.push_back(2 * from[i] + (i >= prompt ? 1 : 0));
      }
    }
    std::sort(seen.begin(), seen.end());
    const float factor = at_row(repeat, row, 1);
    for (size_t i = 0; i < seen.size();) {
      const int64_t token = seen[i] / 2;
      int64_t count = 0;
      for (; i < seen.size() && seen[i] / 2 == token; ++i) {
        count += seen[i] % 2;
      }
      float& score = scores[token];
      score = score > 0 ? score / factor : score * factor;
      score -= at_row(often, row, 0) * static_cast<float>(count);
      score -= count > 0 ? at_row(present, row, 0) : 0;
    }
    for (int64_t i = 0; ids.defined() && i < ids.size(1); ++i) {
      const int64_t id = ids.const_data_ptr<int64_t>()[row * ids.size(1) + i];
      if (id >= 0 && id < vocabulary) {
        scores[id] += more.const_data_ptr<float>()[row * ids.size(1) + i];
      }
    }
  }
  return out;
}

MUSA_NATIVE_KERNEL("musa::penalize_logits", penalize_logits);

TORCH_LIBRARY_FRAGMENT(musa, library) {
  library.def(
      "penalize_logits(Tensor logits, Tensor tokens, *, Tensor? prompt_lengths=None, Tensor? repetition=None, "
      "Tensor? frequency=None, Tensor? presence=None, Tensor? bias_ids=None, Tensor? bias=None) -> Tensor");
}
TORCH_LIBRARY_IMPL(musa, Meta, library) { library.impl("penalize_logits", TORCH_FN(penalize_logits_meta)); }
TORCH_LIBRARY_IMPL(musa, CPU, library) { library.impl("penalize_logits", TORCH_FN(penalize_logits_reference)); }

}  // namespace
}  // namespace musa
