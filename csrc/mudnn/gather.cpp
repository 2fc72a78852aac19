#include "mudnn/gather.h"

#include <string.h>

#include <algorithm>

namespace mudnn {
namespace {

constexpr int64_t kBytesPerTask = 65536;

}  // namespace

void gather_rows(const GatherProblem& problem, const Parallel& parallel) {
  const int64_t grain = std::max<int64_t>(1, kBytesPerTask / std::max<int64_t>(1, problem.row_bytes));
  parallel.for_each(problem.count, grain, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      memcpy(
          static_cast<char*>(problem.out) + i * problem.row_bytes,
          static_cast<const char*>(problem.table) + problem.ids[i] * problem.table_stride,
          static_cast<size_t>(problem.row_bytes));
    }
  });
}

}  // namespace mudnn
