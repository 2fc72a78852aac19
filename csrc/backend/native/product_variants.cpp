#include "backend/native/product_variants.h"

#include <ATen/EmptyTensor.h>
#include <ATen/ops/addmm_cpu_dispatch.h>
#include <ATen/ops/baddbmm_cpu_dispatch.h>
#include <ATen/ops/bmm_cpu_dispatch.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/mm_cpu_dispatch.h>
#include <ATen/ops/rand.h>

#include <algorithm>
#include <sstream>

#include "backend/native/kernels.h"
#include "backend/native/selection.h"
#include "backend/native/tensors.h"
#include "backend/native/trials.h"
#include "backend/storage.h"
#include "mudnn/isa.h"

namespace musa {
namespace {

using mudnn::GemmProblem;
using mudnn::GemmWay;

// In the order of mudnn's names for them. The two dot ways sum in one order, the two packed ones in another; the
// reference in one that may depend on sizes and threads, so that only measured times may choose it.
enum Variant { kDot, kDotExchanged, kPacked, kPackedExchanged, kReference, kVariants };

bool is_exchanged(int variant) { return variant == kDotExchanged || variant == kPackedExchanged; }

GemmWay way_of(int variant) { return variant <= kDotExchanged ? GemmWay::kDot : GemmWay::kPacked; }

// As text and, where nobody asks for that, as a truth value.
const char* excludes(int variant, const GemmProblem& problem) {
  switch (variant) {
    case kDot:
    case kDotExchanged:
      return mudnn::gemm_excludes(GemmWay::kDot, problem);  // both read b by columns and a by rows
    case kReference:
      return problem.out_dtype != problem.dtype || (problem.addend != nullptr && problem.addend_dtype != problem.dtype)
          ? "PyTorch's CPU kernels have no out_dtype"
          : nullptr;
    default:
      return nullptr;
  }
}

double estimate(int variant, const GemmProblem& problem) {
  return mudnn::gemm_estimate(way_of(variant), is_exchanged(variant) ? transposed(problem) : problem);
}

// More columns than this fill the tiles and streams of either way: nothing is won by the exchange.
constexpr int64_t kManyColumns = 64;

bool may_gain_by_exchange(const GemmProblem& problem) { return problem.n < kManyColumns || problem.c_column != 1; }

/// Of the variants first .. last, as they are or exchanged.
int cheapest(const GemmProblem& problem, int first, int last) {
  const int step = may_gain_by_exchange(problem) ? 1 : 2;
  int best = first;
  double least = first + step > last ? 0 : estimate(first, problem);
  for (int variant = first + step; variant <= last; variant += step) {
    const double other = estimate(variant, problem);
    if (other < least) {
      best = variant;
      least = other;
    }
  }
  return best;
}

int choose_by_model(const GemmProblem& problem) {
  return cheapest(problem, mudnn::gemm_can(GemmWay::kDot, problem) ? kDot : kPacked, kPackedExchanged);
}

/// By what does not depend on the number of rows: the layout of b. `a` by columns is copied, see run_invariant.
int choose_invariant(const GemmProblem& problem) {
  return problem.b_row == 1 ? cheapest(problem, kDot, kDotExchanged) : cheapest(problem, kPacked, kPackedExchanged);
}

at::Tensor view(
    const void* data, mudnn::Dtype dtype, int64_t batch, int64_t rows, int64_t columns, int64_t batch_stride,
    int64_t row_stride, int64_t column_stride) {
  return at::from_blob(
      const_cast<void*>(data), {batch, rows, columns}, {batch_stride, row_stride, column_stride},
      at::TensorOptions(torch_dtype(dtype)));
}

/// PyTorch's CPU kernels.
void run_reference(const GemmProblem& p) {
  const at::Tensor a = view(p.a, p.dtype, p.batch, p.m, p.k, p.a_batch, p.a_row, p.a_column);
  const at::Tensor b = view(p.b, p.dtype, p.batch, p.k, p.n, p.b_batch, p.b_row, p.b_column);
  at::Tensor c = view(p.c, p.out_dtype, p.batch, p.m, p.n, p.c_batch, p.c_row, p.c_column);
  if (p.addend == nullptr && p.alpha == 1) {
    if (p.batch == 1) {
      at::Tensor matrix = c.select(0, 0);
      at::cpu::mm_outf(a.select(0, 0), b.select(0, 0), matrix);
    } else {
      at::cpu::bmm_outf(a, b, c);
    }
    return;
  }
  const at::Tensor addend = p.addend == nullptr
      ? c
      : view(p.addend, p.addend_dtype, p.batch, p.m, p.n, p.addend_batch, p.addend_row, p.addend_column);
  if (p.batch == 1) {
    at::Tensor matrix = c.select(0, 0);
    at::cpu::addmm_outf(addend.select(0, 0), a.select(0, 0), b.select(0, 0), p.beta, p.alpha, matrix);
  } else {
    at::cpu::baddbmm_outf(addend, a, b, p.beta, p.alpha, c);
  }
}

void run_variant(int variant, const GemmProblem& problem) {
  if (variant == kReference) {
    run_reference(problem);
  } else {
    mudnn::gemm(way_of(variant), is_exchanged(variant) ? transposed(problem) : problem, torch_threads());
  }
}

void run_invariant(const GemmProblem& problem) {
  const int variant = choose_invariant(problem);
  if (way_of(variant) != GemmWay::kDot || problem.a_column == 1) {
    run_variant(variant, problem);
    return;
  }
  const AllocateOnCard on_host(0, nullptr);
  const at::Tensor a = view(
                           problem.a, problem.dtype, problem.batch, problem.m, problem.k, problem.a_batch,
                           problem.a_row, problem.a_column)
                           .contiguous();
  GemmProblem other = problem;
  other.a = a.const_data_ptr();
  other.a_batch = problem.m * problem.k;
  other.a_row = problem.k;
  other.a_column = 1;
  run_variant(variant, other);
}

const char* layout_name(int64_t row, int64_t column) { return column == 1 ? "rows" : row == 1 ? "columns" : "strided"; }

uint64_t layout(int64_t row, int64_t column) { return column == 1 ? 0 : row == 1 ? 1 : 2; }

uint64_t key_of(const GemmProblem& p) {
  mudnn::KeyBuilder key(mudnn::Family::kProduct);
  key.add(mudnn::bucket_of(p.batch), 6);
  key.add(mudnn::bucket_of(p.m), 7);
  key.add(mudnn::bucket_of(p.n), 7);
  key.add(mudnn::bucket_of(p.k), 7);
  key.add(static_cast<uint64_t>(p.dtype), 2);
  key.add(static_cast<uint64_t>(p.out_dtype), 2);
  key.add(layout(p.a_row, p.a_column), 2);
  key.add(layout(p.b_row, p.b_column), 2);
  key.add(layout(p.c_row, p.c_column), 2);
  key.add(p.addend != nullptr ? 1 : 0, 1);
  key.add(static_cast<uint64_t>(mudnn::isa()), 2);
  key.add(static_cast<uint64_t>(torch_threads().threads), 9);
  return key.key();
}

std::string text_of(const GemmProblem& p) {
  const auto bucket = [](int64_t size) { return mudnn::bucket_size(mudnn::bucket_of(size)); };
  std::ostringstream text;
  text << (p.batch == 1 ? "mm " : "bmm ");
  if (p.batch != 1) {
    text << bucket(p.batch) << 'x';
  }
  text << bucket(p.m) << 'x' << bucket(p.n) << 'x' << bucket(p.k) << ' ' << c10::toString(torch_dtype(p.dtype));
  if (p.out_dtype != p.dtype) {
    text << "->" << c10::toString(torch_dtype(p.out_dtype));
  }
  text << " a=" << layout_name(p.a_row, p.a_column) << " b=" << layout_name(p.b_row, p.b_column)
       << " c=" << layout_name(p.c_row, p.c_column) << (p.addend != nullptr ? " added" : "") << ' '
       << mudnn::isa_name(mudnn::isa()) << " threads=" << torch_threads().threads;
  return text.str();
}

/// Times of all candidates, which write into memory of their own: the result may be its own addend. Empty: too large.
std::vector<mudnn::MeasuredTime> measure(const GemmProblem& problem) {
  const int64_t elements = 1 + (problem.batch - 1) * std::abs(problem.c_batch) +
      (problem.m - 1) * std::abs(problem.c_row) + (problem.n - 1) * std::abs(problem.c_column);
  const int64_t bytes = elements * static_cast<int64_t>(c10::elementSize(torch_dtype(problem.out_dtype)));
  if (bytes > kMostTrialBytes) {
    return {};
  }
  const AllocateOnCard on_host(0, nullptr);  // no figure of the card's may tell that something was tried
  const at::Tensor memory = at::detail::empty_cpu({bytes}, at::TensorOptions(at::kByte));
  GemmProblem trial = problem;
  trial.c = memory.mutable_data_ptr();
  std::vector<mudnn::MeasuredTime> times;
  for (int variant = 0; variant < kVariants; ++variant) {
    if (excludes(variant, problem) == nullptr) {
      times.push_back({variant, mudnn::least_time([&] { run_variant(variant, trial); })});
    }
  }
  return times;
}

bool is_empty(const GemmProblem& p) { return p.batch == 0 || p.m == 0 || p.n == 0 || p.k == 0; }

int choose_by_times(const GemmProblem& problem) {
  if (is_empty(problem)) {
    return choose_by_model(problem);
  }
  const int variant = timed_choice(key_of(problem), [&] { return measure(problem); }, [&] { return text_of(problem); });
  return variant >= 0 && excludes(variant, problem) == nullptr ? variant : choose_by_model(problem);
}

}  // namespace

void run_product(const GemmProblem& problem) {
  if (mudnn::batch_invariant.load(std::memory_order_relaxed)) [[unlikely]] {
    run_invariant(problem);
    return;
  }
  if (mudnn::tune_mode() == mudnn::TuneMode::kModel) [[likely]] {
    run_variant(choose_by_model(problem), problem);
    return;
  }
  const int variant = choose_by_times(problem);
  if (variant == kReference) {
    note_reference();
  }
  run_variant(variant, problem);
}

Explanation explain_product(const ProductQuestion& question) {
  const int64_t batch = question.batch, m = question.m, n = question.n, k = question.k;
  GemmProblem problem{};
  problem.dtype = *mudnn_dtype(question.dtype);
  problem.out_dtype = problem.dtype;
  problem.batch = batch;
  problem.m = m;
  problem.n = n;
  problem.k = k;
  problem.a_batch = m * k;
  problem.a_row = question.a_by_columns ? 1 : k;
  problem.a_column = question.a_by_columns ? m : 1;
  problem.b_batch = k * n;
  problem.b_row = question.b_by_columns ? 1 : n;
  problem.b_column = question.b_by_columns ? k : 1;
  problem.c_batch = m * n;
  problem.c_row = n;
  problem.c_column = 1;
  at::Tensor a, b, c;
  std::vector<mudnn::MeasuredTime> times;
  if (question.measure && !is_empty(problem)) {
    a = at::rand({batch, m, k}, at::TensorOptions(question.dtype));
    b = at::rand({batch, k, n}, at::TensorOptions(question.dtype));
    problem.a = a.const_data_ptr();
    problem.b = b.const_data_ptr();
    times = measure(problem);
  }
  const bool invariant = mudnn::batch_invariant.load();
  const bool timed = mudnn::tune_mode() != mudnn::TuneMode::kModel && !invariant;
  std::vector<Candidate> candidates;
  for (int variant = 0; variant < kVariants; ++variant) {
    const char* why = excludes(variant, problem);
    if (why == nullptr && variant == kReference && !timed) {
      why = "its sums may depend on sizes and threads: only by measured times";
    } else if (
        why == nullptr && invariant && way_of(variant) != (problem.b_row == 1 ? GemmWay::kDot : GemmWay::kPacked)) {
      why = "batch_invariant: the layout of b alone decides";
    }
    candidates.push_back({variant == kReference || why != nullptr ? 0 : estimate(variant, problem), why});
  }
  return explain(
      {.family = mudnn::Family::kProduct,
       .key = key_of(problem),
       .text = text_of(problem),
       .candidates = std::move(candidates),
       .by_model = invariant ? choose_invariant(problem) : choose_by_model(problem),
       .reference = kReference,
       .native = native_enabled("aten::" + question.op)},
      std::move(times));
}

}  // namespace musa
