#include "backend/native/attention_variants.h"

#include <ATen/EmptyTensor.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/rand.h>

#include <cmath>
#include <sstream>

#include "backend/native/kernels.h"
#include "backend/native/selection.h"
#include "backend/native/tensors.h"
#include "backend/native/trials.h"
#include "backend/storage.h"
#include "mudnn/isa.h"

namespace musa {
namespace {

using mudnn::AttentionProblem;
using mudnn::AttentionWay;

constexpr AttentionWay kWays[] = {AttentionWay::kStreams, AttentionWay::kTiles};

bool has_map(const AttentionProblem& p) {
  return p.left >= 0 || p.right >= 0 || p.mask.kind != mudnn::AttentionMask::Kind::kNone || p.blocks.live != nullptr;
}

uint64_t key_of(const AttentionProblem& p) {
  mudnn::KeyBuilder key(mudnn::Family::kAttention);
  key.add(mudnn::bucket_of(p.batches), 6);
  key.add(mudnn::bucket_of(p.heads), 6);
  key.add(mudnn::bucket_of(p.kv_heads), 6);
  key.add(mudnn::bucket_of(p.queries), 7);
  key.add(mudnn::bucket_of(p.keys), 7);
  key.add(mudnn::bucket_of(p.head_dim), 5);
  key.add(mudnn::bucket_of(p.value_dim), 5);
  key.add(static_cast<uint64_t>(p.dtype), 2);
  key.add(has_map(p) ? 1 : 0, 1);
  key.add(p.query_starts != nullptr ? 1 : 0, 1);
  key.add(static_cast<uint64_t>(mudnn::isa()), 2);
  key.add(static_cast<uint64_t>(torch_threads().threads), 9);
  return key.key();
}

std::string text_of(const AttentionProblem& p) {
  const auto bucket = [](int64_t size) { return mudnn::bucket_size(mudnn::bucket_of(size)); };
  std::ostringstream text;
  text << "attention " << bucket(p.batches) << 'x' << bucket(p.heads) << 'x' << bucket(p.queries) << 'x'
       << bucket(p.head_dim) << ' ' << c10::toString(torch_dtype(p.dtype)) << " keys=" << bucket(p.keys)
       << " kv_heads=" << bucket(p.kv_heads) << " value_dim=" << bucket(p.value_dim) << (has_map(p) ? " masked" : "")
       << (p.query_starts != nullptr ? " varlen" : "") << ' ' << mudnn::isa_name(mudnn::isa())
       << " threads=" << torch_threads().threads;
  return text.str();
}

/// Times of all candidates, which write into memory of their own. Empty: too large, or nothing to do.
std::vector<mudnn::MeasuredTime> measure(const AttentionProblem& problem) {
  // With starts the rows of all batches follow each other: how many there are is not said.
  if (problem.batches * problem.heads * problem.queries * problem.keys == 0 || problem.query_starts != nullptr) {
    return {};
  }
  AttentionProblem trial = problem;
  trial.out_row = problem.value_dim;
  trial.out_head = problem.queries * trial.out_row;
  trial.out_batch = problem.heads * trial.out_head;
  trial.logsumexp = nullptr;
  const int64_t bytes = problem.batches * trial.out_batch * (problem.dtype == mudnn::Dtype::kFloat32 ? 4 : 2);
  if (bytes > kMostTrialBytes) {
    return {};
  }
  const AllocateOnCard on_host(0, nullptr);  // no figure of the card's may tell that something was tried
  const at::Tensor memory = at::detail::empty_cpu({bytes}, at::TensorOptions(at::kByte));
  trial.out = memory.mutable_data_ptr();
  std::vector<mudnn::MeasuredTime> times;
  for (const AttentionWay way : kWays) {
    if (mudnn::attention_excludes(way, problem) == nullptr) {
      const double time = mudnn::least_time([&] { mudnn::attention(way, trial, torch_threads()); });
      times.push_back({static_cast<int>(way), time});
    }
  }
  return times;
}

AttentionWay choose_by_times(const AttentionProblem& problem) {
  const int found = timed_choice(key_of(problem), [&] { return measure(problem); }, [&] { return text_of(problem); });
  const auto way = static_cast<AttentionWay>(found);
  return found >= 0 && mudnn::attention_excludes(way, problem) == nullptr ? way : mudnn::attention_way(problem);
}

}  // namespace

void run_attention(const AttentionProblem& problem) {
  const bool by_model = mudnn::tune_mode() == mudnn::TuneMode::kModel || mudnn::batch_invariant.load();
  mudnn::attention(by_model ? mudnn::attention_way(problem) : choose_by_times(problem), problem, torch_threads());
}

Explanation explain_attention(const AttentionQuestion& q) {
  AttentionProblem problem{};
  problem.dtype = *mudnn_dtype(q.dtype);
  problem.batches = q.batch;
  problem.heads = q.heads;
  problem.kv_heads = q.kv_heads;
  problem.queries = q.queries;
  problem.keys = q.keys;
  problem.head_dim = q.head_dim;
  problem.value_dim = q.head_dim;
  problem.scale = static_cast<float>(1 / std::sqrt(static_cast<double>(q.head_dim)));
  problem.right = q.causal ? 0 : -1;
  std::vector<mudnn::MeasuredTime> times;
  if (q.measure) {
    const auto operand = [&](int64_t heads, int64_t rows, mudnn::AttentionRows* to) {
      at::Tensor tensor = at::rand({q.batch, heads, rows, q.head_dim}, at::TensorOptions(q.dtype));
      *to = {.data = tensor.const_data_ptr(), .batch = tensor.stride(0), .head = tensor.stride(1), .row = q.head_dim};
      return tensor;
    };
    const at::Tensor kept[] = {
        operand(q.heads, q.queries, &problem.query), operand(q.kv_heads, q.keys, &problem.key),
        operand(q.kv_heads, q.keys, &problem.value)};
    times = measure(problem);
  }
  std::vector<Candidate> candidates;
  for (const AttentionWay way : kWays) {
    const char* why = mudnn::attention_excludes(way, problem);
    if (why == nullptr && mudnn::batch_invariant.load() && way == AttentionWay::kStreams) {
      why = "batch_invariant: only one of the ways serves any number of queries";
    }
    candidates.push_back({why == nullptr ? mudnn::attention_estimate(way, problem) : 0, why});
  }
  candidates.push_back({0, "for other dtypes and wrong calls, and where TORCH_MUSA_SIM_NATIVE says so"});
  return explain(
      {.family = mudnn::Family::kAttention,
       .key = key_of(problem),
       .text = text_of(problem),
       .candidates = std::move(candidates),
       .by_model = static_cast<int>(mudnn::attention_way(problem)),
       .reference = 2,
       .native = native_enabled("aten::_scaled_dot_product_flash_attention_for_cpu")},
      times);
}

}  // namespace musa
