#include "backend/native/trials.h"

#include <algorithm>

#include "backend/graph/musa_graph.h"

namespace musa {

c10::ScalarType torch_dtype(mudnn::Dtype dtype) {
  switch (dtype) {
    case mudnn::Dtype::kFloat32:
      return at::kFloat;
    case mudnn::Dtype::kBfloat16:
      return at::kBFloat16;
    case mudnn::Dtype::kFloat16:
      break;
  }
  return at::kHalf;
}

bool may_measure() {
  return mudnn::tune_mode() == mudnn::TuneMode::kTimed && !at::in_parallel_region() &&
      !graph::is_current_stream_capturing();
}

int keep_quickest(uint64_t key, std::string text, std::vector<mudnn::MeasuredTime> times) {
  if (times.empty()) {
    return -1;
  }
  const auto quickest = std::min_element(times.begin(), times.end(), [](const auto& one, const auto& other) {
    return one.nanoseconds < other.nanoseconds;
  });
  return mudnn::choices().add(key, {std::move(text), quickest->variant, times, false});
}

Explanation explain(const Case& question, std::vector<mudnn::MeasuredTime> times) {
  const auto names = mudnn::variant_names(question.family);
  const bool invariant = mudnn::batch_invariant.load();
  std::optional<mudnn::Record> record;
  if (!invariant && mudnn::tune_mode() != mudnn::TuneMode::kModel) {
    record = mudnn::choices().record(question.key);
  }
  if (times.empty() && record.has_value()) {
    times = record->times;
  }
  Explanation result{.key = question.text, .variants = {}, .taken = {}, .source = {}};
  for (size_t variant = 0; variant < question.candidates.size(); ++variant) {
    const Candidate& candidate = question.candidates[variant];
    ExplainedVariant one{
        .name = names[variant],
        .estimate = candidate.estimate,
        .time = std::nullopt,
        .excluded = candidate.excluded == nullptr ? "" : candidate.excluded};
    for (const mudnn::MeasuredTime& time : times) {
      if (time.variant == static_cast<int>(variant)) {
        one.time = time.nanoseconds;
      }
    }
    result.variants.push_back(std::move(one));
  }
  if (!question.native) {
    result.taken = names[question.reference];
    result.source = "forced by TORCH_MUSA_SIM_NATIVE";
  } else if (invariant) {
    result.taken = names[question.by_model];
    result.source = "batch_invariant";
  } else if (record.has_value() && question.candidates[record->variant].excluded == nullptr) {
    result.taken = names[record->variant];
    result.source = record->from_file ? "measured, from " + mudnn::choices().path() : "measured in this process";
  } else {
    result.taken = names[question.by_model];
    result.source = "model";
  }
  return result;
}

}  // namespace musa
