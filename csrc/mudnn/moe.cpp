#include "mudnn/moe.h"

#include <string.h>

#include <algorithm>
#include <vector>

#include "mudnn/isa.h"
#include "mudnn/routing.h"
#include "mudnn/scratch.h"

namespace mudnn {

MUDNN_TABLES_OF(MoeKernels, moe)

namespace {

// Memory for what lies between the products; more tokens are done in parts.
constexpr int64_t kActivatedBytes = int64_t{64} << 20;
constexpr int64_t kFewestTokens = 64;
// Sums of a task in the second cache.
constexpr int64_t kTaskBytes = int64_t{256} << 10;

int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

int64_t size_of(Dtype dtype) { return dtype == Dtype::kFloat32 ? 4 : 2; }

template <class T>
const T* offset(const void* data, int64_t bytes) {
  return reinterpret_cast<const T*>(static_cast<const char*>(data) + bytes);
}

/// Hands out parts of one block of memory, each from a cache line on.
class Carver {
 public:
  explicit Carver(void* memory) : memory_(static_cast<char*>(memory)) {}

  template <class T>
  T* take(int64_t count) {
    char* part = memory_ + used_;
    used_ += ceil_div(count * static_cast<int64_t>(sizeof(T)), 64) * 64;
    return reinterpret_cast<T*>(part);
  }

 private:
  char* memory_;
  int64_t used_ = 0;
};

/// Columns of one task, so that its sums fit and each thread has some.
int64_t columns_per_task(int64_t columns, int64_t tokens, int64_t tasks_wanted) {
  const int64_t fitting = std::max<int64_t>(8, kTaskBytes / (16 * std::max<int64_t>(1, tokens)));
  const int64_t even = std::max<int64_t>(8, ceil_div(columns, std::max<int64_t>(1, tasks_wanted)));
  return std::max<int64_t>(1, std::min({columns, fitting, even}));
}

void run(const MoeWork& work, const Parallel& parallel) {
  const MoeKernels& kernels = moe_kernels();
  struct Task {
    int32_t expert;
    int64_t begin, end;
  };
  const int64_t wanted = parallel.threads > 1 ? 4 * parallel.threads : 1;
  std::vector<Task> tasks;
  for (int64_t i = 0; i < work.expert_count; ++i) {
    const int64_t half = ceil_div(work.experts[i].inner, 2);
    const int64_t columns =
        std::min(kMostExpanded, columns_per_task(half, work.experts[i].count, ceil_div(wanted, work.expert_count)));
    for (int64_t begin = 0; begin < half; begin += columns) {
      tasks.push_back({static_cast<int32_t>(i), begin, std::min(half, begin + columns)});
    }
  }
  parallel.for_each(static_cast<int64_t>(tasks.size()), 1, [&](int64_t begin, int64_t end) {
    for (int64_t task = begin; task < end; ++task) {
      kernels.expand(work, work.experts[tasks[task].expert], tasks[task].begin, tasks[task].end);
    }
  });
  const int64_t quarter = ceil_div(work.hidden, 4);
  const int64_t columns = columns_per_task(quarter, work.tokens, wanted);
  parallel.for_each(ceil_div(quarter, columns), 1, [&](int64_t begin, int64_t end) {
    for (int64_t task = begin; task < end; ++task) {
      kernels.combine(work, task * columns, std::min(quarter, (task + 1) * columns));
    }
  });
}

/// Tokens first .. first + count of the problem.
void run_part(const MoeProblem& problem, int64_t first, int64_t count, const Parallel& parallel) {
  const int64_t element = size_of(problem.dtype);
  const int64_t pairs = count * problem.k;
  const int64_t row_bytes = problem.hidden * element;
  const int64_t shared = problem.shared_gate_up != nullptr ? count * problem.shared_inner : 0;
  const int64_t bytes =
      pairs * (2 * 4 + row_bytes + problem.inner * element) + problem.experts * 4 + shared * element + 64 * 8;
  Carver memory(scratch(0, static_cast<size_t>(bytes)));
  int32_t* tokens = memory.take<int32_t>(pairs);
  float* weights = memory.take<float>(pairs);
  int32_t* counts = memory.take<int32_t>(problem.experts);
  char* gathered = memory.take<char>(pairs * row_bytes);
  char* activated = memory.take<char>(pairs * problem.inner * element);
  char* shared_activated = memory.take<char>(shared * element);

  if (problem.wide_ids) {
    group_by_expert(
        static_cast<const int64_t*>(problem.ids) + first * problem.k, pairs, problem.experts, tokens, counts);
  } else {
    group_by_expert(
        static_cast<const int32_t*>(problem.ids) + first * problem.k, pairs, problem.experts, tokens, counts);
  }
  for (int64_t i = 0; i < pairs; ++i) {
    weights[i] = problem.weights[first * problem.k + tokens[i]];
    tokens[i] /= static_cast<int32_t>(problem.k);
  }

  const char* x = offset<char>(problem.x, first * row_bytes);
  std::vector<MoeExpert> experts;
  int64_t begin = 0;
  int64_t most = 0;
  for (int64_t expert = 0; expert < problem.experts; ++expert) {
    const int64_t here = counts[expert];
    problem.counts[expert] += here;
    if (here == 0) {
      continue;
    }
    const int64_t weight_bytes = problem.inner * row_bytes;
    experts.push_back(
        {.gate_up = offset<char>(problem.gate_up, expert * 2 * weight_bytes),
         .down = offset<char>(problem.down, expert * weight_bytes),
         .inner = problem.inner,
         .count = here,
         .x = here == 1 ? x + tokens[begin] * row_bytes : gathered + begin * row_bytes,
         .activated = activated + begin * problem.inner * element,
         .tokens = tokens + begin,
         .weights = weights + begin});
    most = std::max(most, here);
    begin += here;
  }
  parallel.for_each(static_cast<int64_t>(experts.size()), 8, [&](int64_t from, int64_t to) {
    for (int64_t i = from; i < to; ++i) {
      const MoeExpert& expert = experts[i];
      for (int64_t row = 0; expert.count > 1 && row < expert.count; ++row) {
        memcpy(
            gathered + (expert.tokens - tokens + row) * row_bytes, x + expert.tokens[row] * row_bytes,
            static_cast<size_t>(row_bytes));
      }
    }
  });
  if (problem.shared_gate_up != nullptr) {
    experts.push_back(
        {.gate_up = problem.shared_gate_up,
         .down = problem.shared_down,
         .inner = problem.shared_inner,
         .count = count,
         .x = x,
         .activated = shared_activated,
         .tokens = nullptr,
         .weights = problem.shared_scale != nullptr ? problem.shared_scale + first : nullptr});
    most = count;
  }
  run({.dtype = problem.dtype,
       .tokens = count,
       .hidden = problem.hidden,
       .gating = problem.gating,
       .experts = experts.data(),
       .expert_count = static_cast<int64_t>(experts.size()),
       .most_tokens = most,
       .out = static_cast<char*>(problem.out) + first * row_bytes},
      parallel);
}

}  // namespace

void fused_moe(const MoeProblem& problem, const Parallel& parallel) {
  std::fill_n(problem.counts, problem.experts, int64_t{0});
  if (problem.tokens == 0 || problem.hidden == 0) {
    return;
  }
  const int64_t token_bytes =
      std::max<int64_t>(1, (problem.k * problem.inner + problem.shared_inner) * size_of(problem.dtype));
  const int64_t part = std::max(kFewestTokens, kActivatedBytes / token_bytes);
  for (int64_t first = 0; first < problem.tokens; first += part) {
    run_part(problem, first, std::min(part, problem.tokens - first), parallel);
  }
}

}  // namespace mudnn
