// musa::sample and musa::filter_logits.
#include "mudnn/sampling.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/argmax.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/full.h>
#include <ATen/ops/sort.h>
#include <ATen/ops/where.h>
#include <torch/library.h>

#include <limits>

#include "backend/native/kernels.h"
#include "backend/native/tensors.h"
#include "backend/ops/random/philox.h"

namespace musa {
namespace {

using Optional = std::optional<at::Tensor>;

/// Of one number for each row, or nothing.
struct Limits {
  const Optional& temperature;
  const Optional& top_k;
  const Optional& top_p;
  const Optional& min_p;
};

void check_rows(const char* op, const char* name, const Optional& values, const at::Tensor& logits, bool integral) {
  if (values.has_value()) {
    TORCH_CHECK(
        values->dim() == 1 && values->sym_size(0) == logits.sym_size(0) &&
            at::isIntegralType(values->scalar_type(), /*includeBool=*/false) == integral,
        op, ": ", name, " has one ", integral ? "integer" : "floating point number", " for each of the ",
        logits.sym_size(0), " rows of logits, got ", values->scalar_type(), " of shape ", values->sym_sizes());
  }
}

void check_sampling(const char* op, const at::Tensor& logits, const Limits& limits) {
  TORCH_CHECK(
      logits.dim() == 2 && logits.is_floating_point() && logits.sym_size(1) >= 1 &&
          logits.sym_size(1) <= std::numeric_limits<int32_t>::max(),
      op, " takes floating point logits of shape [rows, vocabulary], got ", logits.scalar_type(), " of shape ",
      logits.sym_sizes());
  check_rows(op, "temperature", limits.temperature, logits, false);
  check_rows(op, "top_k", limits.top_k, logits, true);
  check_rows(op, "top_p", limits.top_p, logits, false);
  check_rows(op, "min_p", limits.min_p, logits, false);
}

void check_seeds(const at::Tensor& logits, const Optional& seeds, const Optional& offsets, const Limits& limits) {
  check_rows("sample", "seeds", seeds, logits, true);
  check_rows("sample", "offsets", offsets, logits, true);
  TORCH_CHECK(
      seeds.has_value() || !offsets.has_value(), "sample: offsets are positions in the streams of seeds; pass seeds");
  TORCH_CHECK(
      seeds.has_value() ||
          (!limits.temperature.has_value() && !limits.top_k.has_value() && !limits.top_p.has_value() &&
           !limits.min_p.has_value()),
      "sample draws at random by seeds; pass seeds, one for each row, or nothing but logits for the largest of each");
}

/// The row's number in [0, 1): from its own seed and offset alone.
double uniform_of(int64_t seed, int64_t offset) {
  const random::PhiloxBlock block = random::philox_block(static_cast<uint64_t>(seed), static_cast<uint64_t>(offset), 0);
  const uint64_t bits = block.words[0] | static_cast<uint64_t>(block.words[1]) << 32;
  return static_cast<double>(bits >> 11) * 0x1p-53;
}

template <class T>
std::vector<T> values_of(const Optional& values, int64_t rows, T otherwise) {
  if (!values.has_value()) {
    return std::vector<T>(static_cast<size_t>(rows), otherwise);
  }
  const at::Tensor plain = values->to(at::kCPU, c10::CppTypeToScalarType<T>::value).contiguous();
  return {plain.const_data_ptr<T>(), plain.const_data_ptr<T>() + rows};
}

std::vector<double> uniforms_of(const Optional& seeds, const Optional& offsets, int64_t rows) {
  const std::vector<int64_t> seed = values_of<int64_t>(seeds, rows, 0);
  const std::vector<int64_t> offset = values_of<int64_t>(offsets, rows, 0);
  std::vector<double> uniforms(static_cast<size_t>(rows));
  for (int64_t row = 0; row < rows; ++row) {
    uniforms[row] = uniform_of(seed[row], offset[row]);
  }
  return uniforms;
}

std::vector<mudnn::SamplingRow> rows_of(
    const char* op, const at::Tensor& logits, const Limits& limits, bool greedy, const std::vector<double>& uniforms) {
  const int64_t rows = logits.size(0);
  const std::vector<float> temperature = values_of<float>(limits.temperature, rows, greedy ? 0.0f : 1.0f);
  const std::vector<int64_t> top_k = values_of<int64_t>(limits.top_k, rows, 0);
  const std::vector<float> top_p = values_of<float>(limits.top_p, rows, 1);
  const std::vector<float> min_p = values_of<float>(limits.min_p, rows, 0);
  std::vector<mudnn::SamplingRow> every(static_cast<size_t>(rows));
  for (int64_t row = 0; row < rows; ++row) {
    TORCH_CHECK_VALUE(
        temperature[row] >= 0 && std::isfinite(temperature[row]) && !std::isnan(top_p[row]) && !std::isnan(min_p[row]),
        op, ": temperature must be at least 0 and finite, top_p and min_p numbers; row ", row, " has temperature ",
        temperature[row], ", top_p ", top_p[row], ", min_p ", min_p[row]);
    every[row] = {temperature[row], top_k[row], top_p[row], min_p[row], uniforms.empty() ? 0 : uniforms[row]};
  }
  return every;
}

at::Tensor column(
    const std::vector<mudnn::SamplingRow>& rows, auto member, at::ScalarType type, const at::Tensor& like) {
  at::Tensor values = at::empty({static_cast<int64_t>(rows.size()), 1}, like.options().dtype(at::kDouble));
  for (size_t row = 0; row < rows.size(); ++row) {
    values.mutable_data_ptr<double>()[row] = static_cast<double>(rows[row].*member);
  }
  return values.to(type);
}

/// By sorting: the scores, -infinity where a token may not be drawn.
at::Tensor plain_filter(const at::Tensor& logits, const std::vector<mudnn::SamplingRow>& rows) {
  using Row = mudnn::SamplingRow;
  const at::Tensor temperature = column(rows, &Row::temperature, at::kFloat, logits);
  const at::Tensor scores = logits.to(at::kFloat) / at::where(temperature == 0, 1.0, temperature);
  const auto [sorted, order] = at::sort(scores, /*stable=*/true, /*dim=*/-1, /*descending=*/true);
  const at::Tensor largest = sorted.narrow(-1, 0, 1);
  const at::Tensor place = at::arange(scores.size(-1), scores.options().dtype(at::kLong)).unsqueeze(0);
  const at::Tensor top_k = column(rows, &Row::top_k, at::kLong, logits);
  at::Tensor kept = (place < top_k).logical_or(top_k < 1);
  const at::Tensor weights = (sorted.to(at::kDouble) - largest.to(at::kDouble)).exp() * kept;
  const at::Tensor before = weights.cumsum(-1) - weights;
  const at::Tensor top_p = column(rows, &Row::top_p, at::kFloat, logits);
  const at::Tensor reached = before >= top_p.to(at::kDouble) * weights.sum(-1, /*keepdim=*/true);
  kept = kept.logical_and(reached.logical_not().logical_or(place == 0).logical_or(top_p >= 1));
  const at::Tensor min_p = column(rows, &Row::min_p, at::kFloat, logits);
  kept = kept.logical_and((sorted >= largest + min_p.clamp(0, 1).log()).logical_or(min_p <= 0));
  kept = kept.logical_or(largest.isfinite().logical_not());
  const at::Tensor in_place = at::empty_like(kept).scatter_(-1, order, kept);
  return scores.masked_fill(in_place.logical_not(), -std::numeric_limits<double>::infinity());
}

at::Tensor filter_logits_meta(
    const at::Tensor& logits, const Optional& temperature, const Optional& top_k, const Optional& top_p,
    const Optional& min_p) {
  check_sampling("filter_logits", logits, {temperature, top_k, top_p, min_p});
  return at::empty_symint(logits.sym_sizes(), logits.options().dtype(at::kFloat));
}

at::Tensor filter_logits_reference(
    const at::Tensor& logits, const Optional& temperature, const Optional& top_k, const Optional& top_p,
    const Optional& min_p) {
  const Limits limits{temperature, top_k, top_p, min_p};
  check_sampling("filter_logits", logits, limits);
  return plain_filter(logits, rows_of("filter_logits", logits, limits, false, {}));
}

at::Tensor filter_logits(
    const at::Tensor& logits, const Optional& temperature, const Optional& top_k, const Optional& top_p,
    const Optional& min_p) {
  const std::optional<mudnn::Dtype> dtype = mudnn_dtype(logits.scalar_type());
  if (!dtype.has_value()) {
    note_reference();
    return filter_logits_reference(logits, temperature, top_k, top_p, min_p);
  }
  at::Tensor out = filter_logits_meta(logits, temperature, top_k, top_p, min_p);
  const at::Tensor plain = logits.contiguous();
  const auto rows = rows_of("filter_logits", logits, {temperature, top_k, top_p, min_p}, false, {});
  mudnn::filter_logits(
      {.dtype = *dtype,
       .rows = logits.size(0),
       .vocabulary = logits.size(1),
       .logits = plain.const_data_ptr(),
       .row = rows.data()},
      out.mutable_data_ptr<float>(), torch_threads());
  return out;
}

at::Tensor sample_meta(
    const at::Tensor& logits, const Optional& temperature, const Optional& top_k, const Optional& top_p,
    const Optional& min_p, const Optional& seeds, const Optional& offsets) {
  const Limits limits{temperature, top_k, top_p, min_p};
  check_sampling("sample", logits, limits);
  check_seeds(logits, seeds, offsets, limits);
  return at::empty_symint({logits.sym_size(0)}, logits.options().dtype(at::kLong));
}

at::Tensor sample_reference(
    const at::Tensor& logits, const Optional& temperature, const Optional& top_k, const Optional& top_p,
    const Optional& min_p, const Optional& seeds, const Optional& offsets) {
  const Limits limits{temperature, top_k, top_p, min_p};
  check_sampling("sample", logits, limits);
  check_seeds(logits, seeds, offsets, limits);
  const std::vector<double> uniforms = uniforms_of(seeds, offsets, logits.size(0));
  const auto rows = rows_of("sample", logits, limits, !seeds.has_value(), uniforms);
  const at::Tensor scores = plain_filter(logits, rows).to(at::kDouble);
  const at::Tensor best = at::argmax(scores, -1, /*keepdim=*/true);
  const at::Tensor largest = scores.gather(-1, best);
  const at::Tensor sums = (scores - largest).exp().cumsum(-1);
  const at::Tensor total = sums.narrow(-1, sums.size(-1) - 1, 1);
  const at::Tensor uniform = column(rows, &mudnn::SamplingRow::uniform, at::kDouble, logits);
  const at::Tensor drawn = (sums <= uniform * total).sum(-1, /*keepdim=*/true).clamp_max(logits.size(1) - 1);
  const at::Tensor temperatures = column(rows, &mudnn::SamplingRow::temperature, at::kFloat, logits);
  return at::where((temperatures == 0).logical_or(largest.isfinite().logical_not()), best, drawn).squeeze(-1);
}

at::Tensor sample(
    const at::Tensor& logits, const Optional& temperature, const Optional& top_k, const Optional& top_p,
    const Optional& min_p, const Optional& seeds, const Optional& offsets) {
  const std::optional<mudnn::Dtype> dtype = mudnn_dtype(logits.scalar_type());
  if (!dtype.has_value()) {
    note_reference();
    return sample_reference(logits, temperature, top_k, top_p, min_p, seeds, offsets);
  }
  at::Tensor ids = sample_meta(logits, temperature, top_k, top_p, min_p, seeds, offsets);
  const at::Tensor plain = logits.contiguous();
  const std::vector<double> uniforms = uniforms_of(seeds, offsets, logits.size(0));
  const auto rows = rows_of("sample", logits, {temperature, top_k, top_p, min_p}, !seeds.has_value(), uniforms);
  mudnn::sample(
      {.dtype = *dtype,
       .rows = logits.size(0),
       .vocabulary = logits.size(1),
       .logits = plain.const_data_ptr(),
       .row = rows.data()},
      ids.mutable_data_ptr<int64_t>(), torch_threads());
  return ids;
}

MUSA_NATIVE_KERNEL("musa::filter_logits", filter_logits);
MUSA_NATIVE_KERNEL("musa::sample", sample);

TORCH_LIBRARY_FRAGMENT(musa, library) {
  library.def(
      "filter_logits(Tensor logits, *, Tensor? temperature=None, Tensor? top_k=None, Tensor? top_p=None, "
      "Tensor? min_p=None) -> Tensor");
  library.def(
      "sample(Tensor logits, *, Tensor? temperature=None, Tensor? top_k=None, Tensor? top_p=None, Tensor? min_p=None, "
      "Tensor? seeds=None, Tensor? offsets=None) -> Tensor");
}
TORCH_LIBRARY_IMPL(musa, Meta, library) {
  library.impl("filter_logits", TORCH_FN(filter_logits_meta));
  library.impl("sample", TORCH_FN(sample_meta));
}
TORCH_LIBRARY_IMPL(musa, CPU, library) {
  library.impl("filter_logits", TORCH_FN(filter_logits_reference));
  library.impl("sample", TORCH_FN(sample_reference));
}

}  // namespace
}  // namespace musa
