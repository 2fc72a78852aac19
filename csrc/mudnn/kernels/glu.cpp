#include "mudnn/glu.h"

#include "mudnn/kernels/dtypes.h"
#include "mudnn/kernels/vec.h"

namespace mudnn {
namespace {

template <class T>
void silu_and_mul_rows(const GluProblem& problem, int64_t begin, int64_t end) {
  for (int64_t row = begin; row < end; ++row) {
    const T* gate = static_cast<const T*>(problem.gate) + row * problem.gate_stride;
    const T* up = static_cast<const T*>(problem.up) + row * problem.up_stride;
    T* out = static_cast<T*>(problem.out) + row * problem.out_stride;
    for_vectors(problem.columns, [&](int64_t i, int count) {
      const Vec g = load_up_to(gate + i, count);
      store_up_to(out + i, g * sigmoid(g) * load_up_to(up + i, count), count);
    });
  }
}

void silu_and_mul(const GluProblem& problem, int64_t begin, int64_t end) {
  for_dtype(problem.dtype, [&](auto element) { silu_and_mul_rows<decltype(element)>(problem, begin, end); });
}

}  // namespace

MUDNN_TABLE(GluKernels, glu) = {silu_and_mul};

}  // namespace mudnn
