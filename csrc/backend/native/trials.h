// What the families of variants share: measured choices, and their explanation.
#pragma once

#include <ATen/Parallel.h>

#include <string>
#include <vector>

#include "backend/native/selection.h"
#include "mudnn/selection.h"
#include "mudnn/types.h"

namespace musa {

/// Results of trials; larger ones are not tried.
constexpr int64_t kMostTrialBytes = int64_t{256} << 20;

c10::ScalarType torch_dtype(mudnn::Dtype dtype);

/// Whether variants may be timed now: not while a graph is captured, nor by one of several threads of a kernel.
bool may_measure();
/// The quickest, kept under the key; -1 where there are no times.
int keep_quickest(uint64_t key, std::string text, std::vector<mudnn::MeasuredTime> times);

/// The choice of the table; measure() first where it has none, which returns the times of the candidates or, where they
/// can't be had, none. -1: there is none.
template <class Measure, class Text>
int timed_choice(uint64_t key, Measure&& measure, Text&& text) {
  const int found = mudnn::choices().find(key);
  return found >= 0 || !may_measure() ? found : keep_quickest(key, text(), measure());
}

struct Candidate {
  double estimate;       // 0: none
  const char* excluded;  // null: it isn't
};

struct Case {
  mudnn::Family family;
  uint64_t key;
  std::string text;
  std::vector<Candidate> candidates;
  int by_model;   // or by invariance
  int reference;  // which of the candidates it is
  bool native;    // TORCH_MUSA_SIM_NATIVE leaves our kernels on
};
/// `times`: measured for this explanation; empty: those of the table.
Explanation explain(const Case& question, std::vector<mudnn::MeasuredTime> times);

}  // namespace musa
